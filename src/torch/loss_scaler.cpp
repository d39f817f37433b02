#include "skein/loss_scaler.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "skein/error.h"

namespace skein {
namespace {

constexpr std::int64_t kMostInARow = 20;

void require(bool allowed, const char* what, double value, const char* expected) {
  if (!allowed)
    throw ConfigError(fmt::format("loss scaler: {} is {}: expected {}", what, value, expected));
}

}  // namespace

LossScaler::LossScaler() : LossScaler(Options{}) {}

LossScaler::LossScaler(const Options& options) : options_(options), factor_(options.initial) {
  require(std::isfinite(options.least) && options.least > 0, "least", options.least,
          "a finite number above 0");
  require(std::isfinite(options.most) && options.most >= options.least, "most", options.most,
          "a finite number, at least the least");
  require(options.initial >= options.least && options.initial <= options.most, "initial",
          options.initial, "a number from the least to the most");
  require(std::isfinite(options.growth) && options.growth >= 1, "growth", options.growth,
          "a finite number, 1 or more");
  require(options.growth_interval >= 1, "growth_interval", options.growth_interval, "1 or more");
  require(options.backoff > 0 && options.backoff < 1, "backoff", options.backoff,
          "a number above 0 and below 1");
}

bool LossScaler::unscale(AveragedGradients& gradients) {
  if (!gradients.of_one_step())
    throw ConfigError(
        "LossScaler::unscale() in before_update(): under abs the gradients of several steps come "
        "together, which had different factors; expected them to be divided by factor() between "
        "backward() and step()");
  if (std::isfinite(gradients.norm())) {
    gradients.scale(1 / factor_);
    state_.in_a_row = 0;
    if (++state_.good >= options_.growth_interval) {
      factor_ = std::min(options_.most, factor_ * options_.growth);
      state_.good = 0;
    }
    return true;
  }
  gradients.skip();
  ++state_.skipped;
  state_.good = 0;
  if (++state_.in_a_row >= kMostInARow && factor_ <= options_.least)
    throw Error(fmt::format(
        "loss scaler: {} steps in a row had gradients that are not finite, at the least factor of "
        "{} too: it is not the factor's fault",
        state_.in_a_row, options_.least));
  factor_ = std::max(options_.least, factor_ * options_.backoff);
  return false;
}

LossScaler::State LossScaler::state() const {
  State state = state_;
  state.factor = factor_;
  return state;
}

void LossScaler::set_state(const State& state) {
  require(state.factor >= options_.least && state.factor <= options_.most, "factor", state.factor,
          "a number from the least to the most");
  require(state.good >= 0 && state.skipped >= 0 && state.in_a_row >= 0, "a count of the state",
          static_cast<double>(std::min({state.good, state.skipped, state.in_a_row})), "0 or more");
  state_ = state;
  factor_ = state.factor;
}

}  // namespace skein
