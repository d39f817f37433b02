// Parameters that are trained otherwise than the rest: a rate, weight decay or momentum of their
// own, or none at all. No torch here.
//
//   skein::sgd(0.1).momentum(0.9).weight_decay(5e-4)
//       .group(skein::group("head.*").learning_rate(1.0))
//       .group(skein::group([](const skein::ParameterInfo& p) { return p.shape.size() == 1; })
//                  .weight_decay(0))
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace skein {

// A trained parameter as a group's predicate sees it.
struct ParameterInfo {
  std::vector<std::string> names;   // under which the module has it: tied weights have several
  std::vector<std::int64_t> shape;  // of its tensor
  const void* tensor = nullptr;     // which tensor it is: for of() in skein/torch_optimizer.h
};

// Says of a parameter whether it is meant.
using WhichParameters = std::function<bool(const ParameterInfo&)>;

// Those of whose names one matches the whole of `pattern`: '*' stands for any characters, dots
// too, '?' for one.
WhichParameters named(const std::string& pattern);

// What is not set stays as the optimizer has it. A parameter may be in several groups: then each
// setting is that of the last group that has it. ConfigError, when the run is made, for a group
// without parameters and for numbers that cannot be.
class ParameterGroup {
 public:
  // `name` stands for the group in messages.
  ParameterGroup(std::string name, WhichParameters which)
      : name(std::move(name)), which(std::move(which)) {}

  // The rate that the group starts with. Schedules and set_learning_rate() change all rates by the
  // same factor.
  ParameterGroup& learning_rate(double value) {
    return learning_rate_ = value, factor_.reset(), *this;
  }

  // The same as a multiple of the optimizer's rate.
  ParameterGroup& factor(double value) { return factor_ = value, learning_rate_.reset(), *this; }

  // In place of the optimizer's.
  ParameterGroup& weight_decay(double value) { return weight_decay_ = value, *this; }

  // The same; of sgd() and torch's SGD and RMSprop.
  ParameterGroup& momentum(double value) { return momentum_ = value, *this; }

  // As Distributed::freeze(), from the start.
  ParameterGroup& frozen(bool on = true) { return frozen_ = on, *this; }

  std::string name;       // what the constructor was given
  WhichParameters which;  // likewise
  std::optional<double> learning_rate_;
  std::optional<double> factor_;
  std::optional<double> weight_decay_;
  std::optional<double> momentum_;
  std::optional<bool> frozen_;
};

// The parameters of named(pattern).
inline ParameterGroup group(const std::string& pattern) { return {pattern, named(pattern)}; }

// Those that `which` is true of; `name` stands for the group in messages.
inline ParameterGroup group(WhichParameters which, std::string name = "") {
  return {std::move(name), std::move(which)};
}

}  // namespace skein
