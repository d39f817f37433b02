#include "strategy/lasgd.h"

#include <fmt/format.h>

#include "skein/error.h"

namespace skein {

Lasgd::Options::Options(OptionReader& reader) {
  period = reader.whole("period", 1, 1, 1 << 30, kPeriodText);
  period_time =
      from_seconds(1e-3 * reader.number("period_ms", 0, 0, 1e9,
                                        "milliseconds between two averages; 0: period counts"));
  if (reader.given("period") && reader.given("period_ms"))
    throw ConfigError(fmt::format("strategy.period = {} and strategy.period_ms = {}: expected one",
                                  reader.value_of("period"), reader.value_of("period_ms")));
  warmup = reader.whole("warmup", 0, 0, std::int64_t{1} << 50,
                        "first samples, trained on by synchronous SGD");
  average_momentum =
      reader.flag("average_momentum", false, "average the optimizer's state as well");
  outer_momentum = OuterMomentum::read(reader);
}

Lasgd::Lasgd(Worker& worker, const Options& options)
    : LocalSteps(worker, kTraits,
                 {.warmup = options.warmup,
                  .average_state = options.average_momentum,
                  .outer_momentum = options.outer_momentum}),
      options_(options) {}

// A round never begins at the boundary at which another ends: so nothing is on its way when all
// workers have learnt, from the same round, that the run is over.
Task<> Lasgd::end_step(std::int64_t samples) {
  if (warming_up()) {
    co_await synchronous_step(samples);
    co_return;
  }
  co_await local_step(samples);
  if (worker_.size() == 1) co_return;
  const bool idle = samples == 0;
  if (!round().posted() && (idle || due()))
    post();
  else if (round().posted() && (idle || round().arrived()))
    co_await merge();
}

bool Lasgd::due() const {
  if (part_done()) return true;
  if (options_.period_time.count() > 0)
    return worker_.loop().now() - merged_at() >= options_.period_time;
  return steps_in_period() >= options_.period;
}

}  // namespace skein
