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

double number_of(const std::map<std::string, std::string>& settings, const std::string& key) {
  const auto found = settings.find(key);
  double value = 0;
  if (found == settings.end() || !parse_number(found->second, value))
    throw ConfigError(fmt::format("the checkpoint's '{}' is '{}': expected a number", key,
                                  found == settings.end() ? "" : found->second));
  require_not_negative(fmt::format("the checkpoint's '{}'", key), value);
  return value;
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
  groups_.set_frozen(which, frozen, who);
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
  return settings;
}

void Distributed::Impl::check_settings(const std::map<std::string, std::string>& settings) const {
  check_between_steps("resume()");
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

void Distributed::Impl::restore_settings(const std::map<std::string, std::string>& settings) {
  check_settings(settings);
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
    groups_.set_frozen([](const ParameterInfo&) { return true; }, false, "resume()");
    if (!found->second.empty())
      groups_.set_frozen(
          [&](const ParameterInfo& each) {
            return lines.find("\n" + each.names.front() + "\n") != std::string::npos;
          },
          true, "resume(): the list of frozen parameters");
  }
  apply_groups();
}

}  // namespace skein
