// What the user changes of a recipe while the run goes on: rates, and which parameters are trained.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <utility>

#include "core/parse_number.h"
#include "optimize/options.h"
#include "torch/distributed_impl.h"

namespace skein {
namespace {

constexpr const char* kRate = "learning rate";
constexpr const char* kFactor = "factor of group ";
constexpr const char* kGroupRate = "rate of group ";
constexpr const char* kGroups = "groups";
constexpr const char* kFrozen = "frozen";
constexpr const char* kMissed = "updates missed while frozen";  // lines: a number and a name

double number_of(const std::map<std::string, std::string>& settings, const std::string& key) {
  const auto found = settings.find(key);
  double value = 0;
  if (found == settings.end() || !parse_number(found->second, value))
    throw ConfigError(fmt::format("the checkpoint's '{}' is '{}': expected a number", key,
                                  found == settings.end() ? "" : found->second));
  require_not_negative(fmt::format("the checkpoint's '{}'", key), value);
  return value;
}

// The entry kMissed, by names; ConfigError for one that no run of `steps` updates could have
// written.
std::map<std::string, std::int64_t> read_missed(const std::string& lines, std::int64_t steps) {
  std::map<std::string, std::int64_t> missed;
  for (std::size_t at = 0; at < lines.size();) {
    const std::size_t end = std::min(lines.find('\n', at), lines.size());
    const std::string line = lines.substr(at, end - at);
    const std::size_t space = std::min(line.find(' '), line.size());
    std::int64_t count = 0;
    if (space == line.size() || !parse_number(line.substr(0, space), count) || count < 0 ||
        count > steps)
      throw ConfigError(fmt::format(
          "the checkpoint's '{}' has the line '{}': expected a number of updates from 0 to {} and "
          "a parameter's name",
          kMissed, line, steps));
    missed[line.substr(space + 1)] = count;
    at = end + 1;
  }
  return missed;
}

// Whether one of the `lines` is a parameter's name.
bool names_one_of(const std::string& lines, const Binding& binding) {
  for (int slot = 0; slot < binding.slots(); ++slot)
    if (("\n" + lines + "\n").find("\n" + binding.names_of_slot(slot).front() + "\n") !=
        std::string::npos)
      return true;
  return false;
}

}  // namespace

double Distributed::Impl::learning_rate() const {
  return worker_.learning_rate() * groups_.groups().front().factor;
}

void Distributed::Impl::check_between_steps(const char* what) const {
  check_usable();
  if (begun_)
    throw ConfigError(
        fmt::format("{} came between backward() and step(): expected it between steps", what));
}

// An update that is still being made keeps the rules that it has.
void Distributed::Impl::apply_groups() {
  auto rules = groups_.rules(binding_);
  courier().with_loop([&] { worker_.set_groups(std::move(rules)); });
}

void Distributed::Impl::set_base_rate(double rate) {
  const LearningRate next = worker_.schedule().with_base(rate);
  courier().with_loop([&] { worker_.set_learning_rate(next); });
  std::vector<double> rates;
  for (const ParameterGroups::Group& group : groups_.groups()) rates.push_back(rate * group.factor);
  view_.set_rates(rates);
  rates_ = std::move(rates);
}

void Distributed::Impl::set_learning_rate(double rate) {
  require_not_negative("set_learning_rate(): the rate", rate);
  check_usable();
  adopt_rates();
  // It becomes the rate of those that no group changes; the others keep their ratio to it.
  for (std::size_t i = 1; i < rates_.size() && rates_.front() > 0; ++i)
    groups_.set_factor(i, factor_between(rates_.front(), rates_[i]));
  groups_.set_factor(0, 1);
  set_base_rate(rate);
  apply_groups();
}

// What a scheduler wrote since the last step.
void Distributed::Impl::adopt_rates() {
  std::vector<double> rates = view_.rates();
  if (rates == rates_) return;
  for (std::size_t i = 0; i < rates.size(); ++i)
    require_not_negative(
        fmt::format("learning rate of param_groups()[{}] of Distributed::optimizer()", i),
        rates[i]);
  double base = worker_.schedule().base();
  if (base == 0) {
    base = *std::ranges::max_element(rates);
    courier().with_loop([&] { worker_.set_learning_rate(worker_.schedule().with_base(base)); });
  }
  for (std::size_t i = 0; i < rates.size(); ++i)
    groups_.set_factor(i, factor_between(base, rates[i]));
  rates_ = std::move(rates);
  apply_groups();
}

void Distributed::Impl::set_frozen(const WhichParameters& which, bool frozen) {
  const char* const who = frozen ? "freeze()" : "unfreeze()";
  check_between_steps(who);
  groups_.set_frozen(which, frozen, worker_.progress.steps, who);
  apply_groups();
}

// A scheduler goes on from the rate that it wrote, which base and factor may not give to the last
// bit: so all three are kept.
std::map<std::string, std::string> Distributed::Impl::settings() {
  adopt_rates();
  std::map<std::string, std::string> settings;
  if (rates_ != first_rates_) {
    settings[kRate] = fmt::format("{}", worker_.schedule().base());
    settings[kGroups] = std::to_string(rates_.size());
    for (std::size_t i = 0; i < rates_.size(); ++i) {
      settings[kFactor + std::to_string(i)] = fmt::format("{}", groups_.groups()[i].factor);
      settings[kGroupRate + std::to_string(i)] = fmt::format("{}", rates_[i]);
    }
  }
  const auto frozen = groups_.frozen();
  if (frozen != first_frozen_) settings[kFrozen] = fmt::format("{}", fmt::join(frozen, "\n"));
  const auto names = groups_.names();
  const auto missed = groups_.missed(worker_.progress.steps);
  std::vector<std::string> lines;
  for (std::size_t i = 0; i < names.size(); ++i)
    if (missed[i] > 0) lines.push_back(fmt::format("{} {}", missed[i], names[i]));
  settings[kMissed] = fmt::format("{}", fmt::join(lines, "\n"));
  return settings;
}

void Distributed::Impl::check_settings(const std::map<std::string, std::string>& settings,
                                       std::int64_t steps) const {
  check_between_steps("resume()");
  if (const auto found = settings.find(kMissed); found != settings.end())
    static_cast<void>(read_missed(found->second, steps));
  if (const auto found = settings.find(kFrozen);
      found != settings.end() && !found->second.empty() && !names_one_of(found->second, binding_))
    throw ConfigError(fmt::format(
        "the checkpoint's list of frozen parameters names none of this run: '{}'", found->second));
  if (!settings.contains(kRate)) return;
  if (number_of(settings, kGroups) != static_cast<double>(rates_.size()))
    throw ConfigError(fmt::format(
        "the checkpoint has rates of {} parameter groups, which were changed since the run began; "
        "this recipe makes {}",
        settings.at(kGroups), rates_.size()));
  static_cast<void>(worker_.schedule().with_base(number_of(settings, kRate)));
  for (std::size_t i = 0; i < rates_.size(); ++i)
    for (const char* what : {kFactor, kGroupRate})
      static_cast<void>(number_of(settings, what + std::to_string(i)));
}

std::vector<std::int64_t> Distributed::Impl::missed_updates() const {
  return groups_.missed(worker_.progress.steps);
}

void Distributed::Impl::restore_missed_updates(const std::vector<std::int64_t>& missed) {
  groups_.restore_missed(missed, worker_.progress.steps);
  apply_groups();
}

// A checkpoint of version 0.1 says nothing of it: then what the recipe freezes counts as frozen
// from the start, and all else as trained from the start.
std::vector<std::int64_t> Distributed::Impl::missed_in(
    const std::map<std::string, std::string>& settings, std::int64_t steps) const {
  std::vector<std::int64_t> missed;
  const auto found = settings.find(kMissed);
  std::map<std::string, std::int64_t> by_name;
  if (found != settings.end()) {
    by_name = read_missed(found->second, steps);
  } else {
    const auto frozen = groups_.frozen();
    for (const std::string& name : first_frozen_)
      if (std::ranges::find(frozen, name) != frozen.end())
        by_name[name] = std::max(steps, worker_.progress.steps);
  }
  for (const std::string& name : groups_.names())
    missed.push_back(by_name.contains(name) ? by_name.at(name) : 0);
  return missed;
}

void Distributed::Impl::restore_settings(const std::map<std::string, std::string>& settings,
                                         std::int64_t steps) {
  check_settings(settings, steps);
  if (settings.contains(kRate)) {
    for (std::size_t i = 0; i < rates_.size(); ++i)
      groups_.set_factor(i, number_of(settings, kFactor + std::to_string(i)));
    set_base_rate(number_of(settings, kRate));
    for (std::size_t i = 0; i < rates_.size(); ++i)
      rates_[i] = number_of(settings, kGroupRate + std::to_string(i));
    view_.set_rates(rates_);
  }
  if (const auto found = settings.find(kFrozen); found != settings.end()) {
    const std::string lines = "\n" + found->second + "\n";
    groups_.set_frozen([](const ParameterInfo&) { return true; }, false, steps, "resume()");
    if (!found->second.empty())
      groups_.set_frozen(
          [&](const ParameterInfo& each) {
            return lines.find("\n" + each.names.front() + "\n") != std::string::npos;
          },
          true, steps, "resume(): the list of frozen parameters");
  }
  groups_.restore_missed(missed_in(settings, steps), worker_.progress.steps);
  apply_groups();
}

}  // namespace skein
