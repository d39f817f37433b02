#include "strategy/local.h"

#include "strategy/option_reader.h"

namespace skein {

Local::Options::Options(const std::map<std::string, std::string>& options) {
  OptionReader reader("local", options);
  period = reader.whole("period", 8, 1, 1 << 30);
  outer_momentum = reader.number("outer_momentum", 0, 0, kMostOuterMomentum);
  reader.finish();
}

Local::Local(Worker& worker, const Options& options)
    : LocalSteps(worker, {.pauses = true, .outer_momentum = options.outer_momentum}),
      options_(options) {}

Task<> Local::end_step(std::int64_t samples) {
  co_await local_step(samples);
  const bool idle = samples == 0;
  if (worker_.size() == 1 || (!idle && !part_done() && steps_since_merge() < options_.period))
    co_return;
  post();
  co_await merge();
}

}  // namespace skein
