#include "torch/periodic_calls.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "torch/checkpoints.h"
#include "torch/distributed_impl.h"

namespace skein {

void PeriodicCalls::add(std::int64_t samples, std::function<void()> body) {
  run_.check_between_steps("every()");
  run_.calls().meet(fmt::format("run.every({})", samples));
  if (samples < 1) throw ConfigError(fmt::format("every({}): expected 1 sample or more", samples));
  if (!body) throw ConfigError(fmt::format("every({}): expected a function to call", samples));
  all_.push_back({samples, Marks(samples, run_.worker().progress.samples), std::move(body)});
}

void PeriodicCalls::restart() {
  for (Each& each : all_) each.marks = Marks(each.every, run_.worker().progress.samples);
}

std::vector<Marks*> PeriodicCalls::marks() {
  std::vector<Marks*> all;
  all.reserve(all_.size());
  for (Each& each : all_) all.push_back(&each.marks);
  return all;
}

bool PeriodicCalls::due() { return first_due(marks(), run_.worker().progress.samples) != nullptr; }

// All workers count the same samples after a flush, so the same marks are due on all of them.
// Afterwards those that came to stay are in their flush again.
void PeriodicCalls::come_together(bool to_stay) {
  for (;;) {
    run_.flush_strategy();
    std::int64_t staying = 0, all = 0;
    {
      // The same on all, whatever brought them here.
      const Workers::Calls::Scope no_other(run_.calls(), "");
      const Workers::Calls::Scope call(run_.calls(), "run.flush() or a mark of run.every()");
      const auto sums = run_.world().sum_integers({to_stay ? 1 : 0, 1});
      staying = sums[0], all = sums[1];
    }
    const bool called = call_due();
    if (!to_stay) return run_.go_on();
    if (staying < all) continue;
    if (called) run_.flush_strategy();
    return;
  }
}

// Returns whether a mark was due.
bool PeriodicCalls::call_due() {
  struct Running {
    explicit Running(bool& flag) : running(flag) { running = true; }
    ~Running() { running = false; }
    bool& running;
  };
  bool called = false;
  const std::int64_t samples = run_.worker().progress.samples;
  while (Marks* const next = first_due(marks(), samples)) {
    called = true;
    next->pass(samples);
    const Running running(running_);
    const Workers::Calls::Scope users_code(run_.calls(), "");
    const auto found =
        std::ranges::find_if(all_, [&](const Each& each) { return &each.marks == next; });
    const std::function<void()> body = found->body;  // which may add another
    body();
  }
  return called;
}

void Distributed::every(std::int64_t samples, std::function<void()> body) {
  impl_->periodic().add(samples, std::move(body));
}

void Distributed::save_every(std::int64_t samples, const std::string& folder,
                             std::function<Values()> values, const CheckpointOptions& options) {
  check_keep("save_every()", options.keep);
  const Workers::Calls::Scope call(impl_->calls(), fmt::format("run.save_every({})", samples));
  Impl* const run = impl_.get();  // this object may move
  impl_->periodic().add(samples, [run, folder, values = std::move(values), options] {
    run->checkpoints().save(folder, values ? values() : Values(), options);
  });
}

}  // namespace skein
