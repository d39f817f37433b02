#include "strategy/local.h"

namespace skein {

Local::Options::Options(OptionReader& reader)
    : period(reader.whole("period", 8, 1, 1 << 30, kPeriodText)),
      outer_momentum(OuterMomentum::read(reader)) {}

Local::Local(Worker& worker, const Options& options)
    : LocalSteps(worker, kTraits, {.pauses = true, .outer_momentum = options.outer_momentum}),
      options_(options) {}

Task<> Local::end_step(std::int64_t samples) {
  co_await local_step(samples);
  const bool idle = samples == 0;
  if (worker_.size() == 1 || (!idle && !part_done() && steps_in_period() < options_.period))
    co_return;
  post();
  co_await merge();
}

}  // namespace skein
