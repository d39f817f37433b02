#include "torch/parameter_groups.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

#include "optimize/options.h"
#include "skein/error.h"
#include "skein/torch_optimizer.h"

namespace skein {
namespace {

constexpr std::size_t kMostNamed = 12;  // parameters in a message

// What the groups that a parameter is in make of it together.
struct Settings {
  std::string name;
  double factor = 1;
  std::optional<double> weight_decay, momentum;
  bool frozen = false;

  void take(const ParameterGroup& group, const std::string& group_name, double base) {
    name += (name.empty() ? "" : ", ") + group_name;
    if (group.learning_rate_) factor = factor_between(base, *group.learning_rate_);
    if (group.factor_) factor = *group.factor_;
    if (group.weight_decay_) weight_decay = group.weight_decay_;
    if (group.momentum_) momentum = group.momentum_;
    if (group.frozen_) frozen = *group.frozen_;
  }
  bool same_group_as(const ParameterGroups::Group& group) const {
    return factor == group.factor && weight_decay == group.weight_decay &&
           momentum == group.momentum;
  }
};

std::string name_of(const ParameterGroup& group, std::size_t number) {
  return group.name.empty() ? fmt::format("number {}", number + 1)
                            : fmt::format("'{}'", group.name);
}

void check(const ParameterGroup& group, const std::string& name, double base) {
  if (!group.which)
    throw ConfigError(fmt::format("parameter group {} has no predicate; expected one", name));
  const auto require = [&](const char* what, const std::optional<double>& value) {
    if (value) require_not_negative(fmt::format("{} of parameter group {}", what, name), *value);
  };
  require("learning rate", group.learning_rate_);
  require("learning-rate factor", group.factor_);
  require("weight decay", group.weight_decay_);
  require("momentum", group.momentum_);
  if (group.learning_rate_.value_or(0) > 0 && base <= 0)
    throw ConfigError(fmt::format(
        "parameter group {} has the learning rate {}, and the optimizer {}: schedules change both "
        "by one factor, so expected one above 0 for the optimizer. Freeze what is not to be "
        "trained",
        name, *group.learning_rate_, base));
}

std::string list(const std::vector<std::string>& names) {
  const std::size_t shown = std::min(names.size(), kMostNamed);
  std::string text = fmt::format(
      "{}", fmt::join(names.begin(), names.begin() + static_cast<std::ptrdiff_t>(shown), ", "));
  if (shown < names.size()) text += fmt::format(" and {} more", names.size() - shown);
  return text;
}

}  // namespace

double factor_between(double base, double rate) {
  const double quotient = rate / base;
  for (const double each :
       {quotient, std::nextafter(quotient, 0), std::nextafter(quotient, HUGE_VAL)})
    if (base * each == rate) return each;
  return quotient;
}

WhichParameters of(const std::vector<torch::Tensor>& tensors) {
  return [tensors](const ParameterInfo& parameter) {
    return std::any_of(tensors.begin(), tensors.end(), [&](const torch::Tensor& tensor) {
      return tensor.unsafeGetTensorImpl() == parameter.tensor;
    });
  };
}

ParameterGroups::ParameterGroups(const Binding& binding, const OptimizerSpec& recipe) : groups_(1) {
  groups_.front().name = "of the rest";
  std::vector<int> members(recipe.groups_.size(), 0);
  for (std::size_t i = 0; i < recipe.groups_.size(); ++i)
    check(recipe.groups_[i], name_of(recipe.groups_[i], i), recipe.learning_rate);
  for (int slot = 0; slot < binding.slots(); ++slot) {
    const torch::Tensor& tensor = binding.parameter(slot);
    Entry entry{{binding.names_of_slot(slot), tensor.sizes().vec(), tensor.unsafeGetTensorImpl()},
                tensor};
    Settings own;
    if (recipe.no_decay_1d_ && tensor.dim() <= 1)
      own.take(skein::group("*").weight_decay(0), "no_decay_1d", recipe.learning_rate);
    for (std::size_t i = 0; i < recipe.groups_.size(); ++i)
      if (recipe.groups_[i].which(entry.info)) {
        own.take(recipe.groups_[i], name_of(recipe.groups_[i], i), recipe.learning_rate);
        ++members[i];
      }
    const auto same = std::find_if(groups_.begin(), groups_.end(),
                                   [&](const Group& each) { return own.same_group_as(each); });
    entry.group = static_cast<std::size_t>(same - groups_.begin());
    if (same == groups_.end())
      groups_.push_back({own.name, {}, {}, own.factor, own.weight_decay, own.momentum});
    groups_[entry.group].parameters.push_back(entry.info.names.front());
    groups_[entry.group].tensors.push_back(tensor);
    entry.frozen = own.frozen;
    entries_.push_back(std::move(entry));
  }
  for (std::size_t i = 0; i < members.size(); ++i)
    if (members[i] == 0)
      throw ConfigError(
          fmt::format("parameter group {} has no trained parameter; expected at least one of: {}",
                      name_of(recipe.groups_[i], i), list(names())));
}

void ParameterGroups::start() {
  for (Entry& each : entries_)
    if (each.frozen) freeze(each, true, 0);
}

void ParameterGroups::freeze(Entry& entry, bool frozen, std::int64_t steps) {
  if (frozen && !entry.frozen) entry.frozen_at = steps;
  if (!frozen && entry.frozen) entry.missed += steps - entry.frozen_at;
  entry.frozen = frozen;
  entry.tensor.set_requires_grad(!frozen);
}

void ParameterGroups::set_frozen(const WhichParameters& which, bool frozen, std::int64_t steps,
                                 const std::string& who) {
  std::vector<Entry*> chosen;
  for (Entry& each : entries_)
    if (which && which(each.info)) chosen.push_back(&each);
  if (chosen.empty())
    throw ConfigError(fmt::format("{} names no parameter of this run; expected at least one of: {}",
                                  who, list(names())));
  for (Entry* each : chosen) freeze(*each, frozen, steps);
}

std::vector<std::string> ParameterGroups::frozen() const {
  std::vector<std::string> names;
  for (const Entry& each : entries_)
    if (each.frozen) names.push_back(each.info.names.front());
  return names;
}

std::vector<std::int64_t> ParameterGroups::missed(std::int64_t steps) const {
  std::vector<std::int64_t> counts;
  for (const Entry& each : entries_)
    counts.push_back(each.missed + (each.frozen ? steps - each.frozen_at : 0));
  return counts;
}

void ParameterGroups::restore_missed(const std::vector<std::int64_t>& missed, std::int64_t steps) {
  SKEIN_CHECK(missed.size() == entries_.size(), "updates missed by {} parameters of {}",
              missed.size(), entries_.size());
  for (std::size_t i = 0; i < entries_.size(); ++i) {
    entries_[i].missed = std::clamp<std::int64_t>(missed[i], 0, steps);
    entries_[i].frozen_at = steps;
  }
}

std::vector<std::string> ParameterGroups::names() const {
  std::vector<std::string> names;
  for (const Entry& each : entries_) names.push_back(each.info.names.front());
  return names;
}

// Slots that follow each other under the same rule make one, with the gap between them.
std::shared_ptr<const Groups> ParameterGroups::rules(const Binding& binding) const {
  std::vector<GroupRule> rules;
  for (int slot = 0; slot < binding.slots(); ++slot) {
    const Entry& entry = entries_[static_cast<std::size_t>(binding.registered(slot))];
    const Group& group = groups_[entry.group];
    const GroupRule rule{.range = binding.arena().slots()[static_cast<std::size_t>(slot)].range,
                         .lr_scale = group.factor,
                         .weight_decay = group.weight_decay,
                         .momentum = group.momentum,
                         .frozen = entry.frozen,
                         .missed = entry.missed};
    if (!rules.empty() && rules.back().same_as(rule))
      rules.back().range.count = rule.range.end() - rules.back().range.offset;
    else
      rules.push_back(rule);
  }
  if (rules.size() == 1 && rules.front().same_as({})) return nullptr;
  return std::make_shared<Groups>(binding.arena().size(), std::move(rules));
}

Facts ParameterGroups::facts() const {
  Facts facts;
  const auto number = [](const std::optional<double>& value) {
    return value ? fmt::format("{}", *value) : "the optimizer's";
  };
  for (std::size_t i = 1; i < groups_.size(); ++i)
    facts.push_back(
        {fmt::format("parameter group {}", groups_[i].name),
         fmt::format("rate times {}, weight decay {}, momentum {}, of {}", groups_[i].factor,
                     number(groups_[i].weight_decay), number(groups_[i].momentum),
                     fmt::join(groups_[i].parameters, " "))});
  if (const auto names = frozen(); !names.empty())
    facts.push_back({"frozen parameters", fmt::format("{}", fmt::join(names, " "))});
  return facts;
}

}  // namespace skein
