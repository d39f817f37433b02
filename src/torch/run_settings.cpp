#include "torch/run_settings.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <sstream>
#include <utility>

#include "core/parse_number.h"
#include "optimize/options.h"
#include "torch/make_optimizer.h"

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

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

// The entry kMissed, by names; ConfigError for one that no run of `steps` updates could have
// written.
std::map<std::string, std::int64_t> read_missed(const std::string& text, std::int64_t steps) {
  std::map<std::string, std::int64_t> missed;
  for (const std::string& line : lines_of(text)) {
    const std::size_t space = std::min(line.find(' '), line.size());
    std::int64_t count = 0;
    if (space == line.size() || !parse_number(line.substr(0, space), count) || count < 0 ||
        count > steps)
      throw ConfigError(fmt::format(
          "the checkpoint's '{}' has the line '{}': expected a number of updates from 0 to {} and "
          "a parameter's name",
          kMissed, line, steps));
    missed[line.substr(space + 1)] = count;
  }
  return missed;
}

}  // namespace

RunSettings::RunSettings(ParameterGroups& groups, const Binding& binding,
                         const OptimizerSpec& recipe, const Optimizer& optimizer, Worker& worker,
                         Courier& courier)
    : groups_(groups),
      binding_(binding),
      worker_(worker),
      courier_(courier),
      view_(groups, *torch_options(recipe, optimizer), recipe.learning_rate),
      rates_(view_.rates()),
      first_rates_(rates_),
      first_frozen_(groups.frozen()) {}

void RunSettings::start() {
  groups_.start();
  apply_groups();
}

double RunSettings::learning_rate() const {
  return worker_.learning_rate() * groups_.groups().front().factor;
}

// An update that is still being made keeps the rules that it has.
void RunSettings::apply_groups() {
  auto rules = groups_.rules(binding_);
  courier_.with_loop([&] { worker_.set_groups(std::move(rules)); });
}

void RunSettings::set_base_rate(double rate) {
  const LearningRate next = worker_.schedule().with_base(rate);
  courier_.with_loop([&] { worker_.set_learning_rate(next); });
  std::vector<double> rates;
  for (const ParameterGroups::Group& group : groups_.groups()) rates.push_back(rate * group.factor);
  view_.set_rates(rates);
  rates_ = std::move(rates);
}

void RunSettings::set_learning_rate(double rate) {
  require_not_negative("set_learning_rate(): the rate", rate);
  adopt_rates();
  // It becomes the rate of those that no group changes; the others keep their ratio to it.
  for (std::size_t i = 1; i < rates_.size() && rates_.front() > 0; ++i)
    groups_.set_factor(i, factor_between(rates_.front(), rates_[i]));
  groups_.set_factor(0, 1);
  set_base_rate(rate);
  apply_groups();
}

// What a scheduler wrote since the last step.
void RunSettings::adopt_rates() {
  std::vector<double> rates = view_.rates();
  if (rates == rates_) return;
  for (std::size_t i = 0; i < rates.size(); ++i)
    require_not_negative(
        fmt::format("learning rate of param_groups()[{}] of Distributed::optimizer()", i),
        rates[i]);
  double base = worker_.schedule().base();
  if (base == 0) {
    base = *std::ranges::max_element(rates);
    courier_.with_loop([&] { worker_.set_learning_rate(worker_.schedule().with_base(base)); });
  }
  for (std::size_t i = 0; i < rates.size(); ++i)
    groups_.set_factor(i, factor_between(base, rates[i]));
  rates_ = std::move(rates);
  apply_groups();
}

void RunSettings::set_frozen(const WhichParameters& which, bool frozen) {
  const char* const who = frozen ? "freeze()" : "unfreeze()";
  groups_.set_frozen(which, frozen, worker_.progress.steps, who);
  apply_groups();
}

// A scheduler goes on from the rate that it wrote, which base and factor may not give to the last
// bit: so all three are kept.
RunSettings::Text RunSettings::text() {
  adopt_rates();
  Text settings;
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

void RunSettings::check(const Text& settings, std::int64_t steps) const {
  if (const auto found = settings.find(kMissed); found != settings.end())
    static_cast<void>(read_missed(found->second, steps));
  if (const auto found = settings.find(kFrozen);
      found != settings.end() && !found->second.empty()) {
    const auto lines = lines_of(found->second), names = groups_.names();
    if (std::ranges::find_first_of(lines, names) == lines.end())
      throw ConfigError(
          fmt::format("the checkpoint's list of frozen parameters names none of this run: '{}'",
                      found->second));
  }
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

std::vector<std::int64_t> RunSettings::missed() const {
  return groups_.missed(worker_.progress.steps);
}

void RunSettings::restore_missed(const std::vector<std::int64_t>& missed) {
  groups_.restore_missed(missed, worker_.progress.steps);
  apply_groups();
}

// A checkpoint of version 0.1 says nothing of it: then what the recipe freezes counts as frozen
// from the start, and all else as trained from the start.
std::vector<std::int64_t> RunSettings::missed_in(const Text& settings, std::int64_t steps) const {
  std::map<std::string, std::int64_t> by_name;
  if (const auto found = settings.find(kMissed); found != settings.end()) {
    by_name = read_missed(found->second, steps);
  } else {
    for (const std::string& name : groups_.frozen())
      if (std::ranges::find(first_frozen_, name) != first_frozen_.end())
        by_name[name] = std::max(steps, worker_.progress.steps);
  }
  std::vector<std::int64_t> missed;
  for (const std::string& name : groups_.names()) missed.push_back(by_name[name]);
  return missed;
}

void RunSettings::restore(const Text& settings, std::int64_t steps) {
  check(settings, steps);
  if (settings.contains(kRate)) {
    for (std::size_t i = 0; i < rates_.size(); ++i)
      groups_.set_factor(i, number_of(settings, kFactor + std::to_string(i)));
    set_base_rate(number_of(settings, kRate));
    for (std::size_t i = 0; i < rates_.size(); ++i)
      rates_[i] = number_of(settings, kGroupRate + std::to_string(i));
    view_.set_rates(rates_);
  }
  if (const auto found = settings.find(kFrozen); found != settings.end()) {
    const auto lines = lines_of(found->second);
    groups_.set_frozen([](const ParameterInfo&) { return true; }, false, steps, "resume()");
    const auto listed = [&](const ParameterInfo& each) {
      return std::ranges::find(lines, each.names.front()) != lines.end();
    };
    if (!lines.empty())
      groups_.set_frozen(listed, true, steps, "resume(): the list of frozen parameters");
  }
  groups_.restore_missed(missed_in(settings, steps), worker_.progress.steps);
  apply_groups();
}

}  // namespace skein
