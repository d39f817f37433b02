#include "optimize/schedule.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numbers>
#include <string>
#include <vector>

#include "core/check.h"
#include "core/parse_number.h"
#include "optimize/options.h"
#include "skein/error.h"

namespace skein {
namespace {

constexpr std::string_view kForms =
    "constant, cosine or step, with options as in cosine:floor=0.001,warmup=5000 or "
    "step:every=50000,factor=0.1";

// The part of `text` before `separator`; `text` becomes what follows it.
std::string_view take_until(std::string_view& text, char separator) {
  const std::size_t at = text.find(separator);
  const std::string_view head = text.substr(0, at);
  text.remove_prefix(at == std::string_view::npos ? text.size() : at + 1);
  return head;
}

// Reads the options of one schedule; errors quote all of it.
class OptionReader {
 public:
  OptionReader(std::string_view whole, Schedule& schedule) : whole_(whole), schedule_(schedule) {}

  void read(std::string_view option) {
    const std::size_t equals = option.find('=');
    if (equals == std::string_view::npos)
      fail(fmt::format("'{}': expected KEY=VALUE with KEY one of {}", option, allowed()));
    const std::string key(option.substr(0, equals));
    if (std::find(seen_.begin(), seen_.end(), key) != seen_.end())
      fail(fmt::format("{} is given twice: expected once", key));
    seen_.push_back(key);
    assign(key, option.substr(equals + 1));
  }

  [[noreturn]] void fail(const std::string& what) const {
    throw ConfigError(fmt::format("schedule '{}': {}", whole_, what));
  }

 private:
  void assign(const std::string& key, std::string_view value) {
    using Kind = Schedule::Kind;
    if (key == "warmup")
      schedule_.warmup = samples(key, value, 0);
    else if (key == "floor" && schedule_.kind == Kind::cosine)
      schedule_.floor = number(key, value, "a rate, 0 or more", true);
    else if (key == "every" && schedule_.kind == Kind::step)
      schedule_.every = samples(key, value, 1);
    else if (key == "factor" && schedule_.kind == Kind::step)
      schedule_.factor = number(key, value, "a number above 0", false);
    else
      fail(fmt::format("unknown key '{}': expected {}", key, allowed()));
  }

  std::string_view allowed() const {
    switch (schedule_.kind) {
      case Schedule::Kind::cosine:
        return "floor, warmup";
      case Schedule::Kind::step:
        return "every, factor, warmup";
      case Schedule::Kind::constant:
        break;
    }
    return "warmup";
  }

  std::int64_t samples(const std::string& key, std::string_view text, std::int64_t least) const {
    std::int64_t value = 0;
    if (!parse_number(text, value) || value < least)
      fail(fmt::format("{} is '{}': expected a whole number of samples, {} or more", key, text,
                       least));
    return value;
  }

  double number(const std::string& key, std::string_view text, std::string_view expected,
                bool zero_allowed) const {
    double value = 0;
    if (!parse_number(text, value) || !std::isfinite(value) || value < 0 ||
        (value == 0 && !zero_allowed))
      fail(fmt::format("{} is '{}': expected {}", key, text, expected));
    return value;
  }

  std::string_view whole_;
  Schedule& schedule_;
  std::vector<std::string> seen_;
};

}  // namespace

Schedule parse_schedule(std::string_view text) {
  Schedule schedule;
  OptionReader reader(text, schedule);
  const bool has_options = text.find(':') != std::string_view::npos;
  std::string_view rest = text;
  const std::string_view name = take_until(rest, ':');
  if (name == "cosine")
    schedule.kind = Schedule::Kind::cosine;
  else if (name == "step")
    schedule.kind = Schedule::Kind::step;
  else if (name != "constant")
    reader.fail(fmt::format("'{}' is no schedule: expected {}", name, kForms));
  if (has_options && (rest.empty() || rest.back() == ','))
    reader.fail(fmt::format("an option is missing at the end: expected {}", kForms));
  while (!rest.empty()) reader.read(take_until(rest, ','));
  if (schedule.kind == Schedule::Kind::step && schedule.every == 0)
    reader.fail("every is missing: expected the samples between two steps, as in step:every=50000");
  return schedule;
}

LearningRate::LearningRate(double base, const Schedule& schedule, std::int64_t total_samples)
    : base_(base), schedule_(schedule), total_samples_(total_samples) {
  using Kind = Schedule::Kind;
  require_not_negative("learning rate", base);
  require_not_negative("warm-up of the schedule, in samples", static_cast<double>(schedule.warmup));
  if (schedule.kind == Kind::cosine) {
    require_not_negative("floor of the cosine schedule", schedule.floor);
    if (schedule.floor > base)
      throw ConfigError(
          fmt::format("floor of the cosine schedule is {}: expected at most the learning rate, {}",
                      schedule.floor, base));
    if (total_samples <= 0)
      throw ConfigError(
          "the cosine schedule falls until the training ends: expected the training's samples, "
          "which are not given");
    if (total_samples <= schedule.warmup)
      throw ConfigError(
          fmt::format("the cosine schedule warms up over {} samples: expected fewer than the whole "
                      "training's {}",
                      schedule.warmup, total_samples));
  }
  if (schedule.kind == Kind::step) {
    require_positive("samples between two steps of the schedule",
                     static_cast<double>(schedule.every));
    require_positive("factor of the step schedule", schedule.factor);
  }
}

double LearningRate::at(std::int64_t samples) const {
  SKEIN_CHECK(samples >= 0, "learning rate after {} samples", samples);
  const auto done = static_cast<double>(samples), warmup = static_cast<double>(schedule_.warmup);
  const double ramp = samples < schedule_.warmup ? done / warmup : 1.0;
  switch (schedule_.kind) {
    case Schedule::Kind::cosine: {
      const double whole = static_cast<double>(total_samples_) - warmup;
      const double part = std::clamp((done - warmup) / whole, 0.0, 1.0);
      const double height = (1 + std::cos(std::numbers::pi * part)) / 2;
      return ramp * (schedule_.floor + (base_ - schedule_.floor) * height);
    }
    case Schedule::Kind::step: {
      const std::int64_t steps = samples / schedule_.every;
      return ramp * base_ * std::pow(schedule_.factor, static_cast<double>(steps));
    }
    case Schedule::Kind::constant:
      break;
  }
  return ramp * base_;
}

}  // namespace skein
