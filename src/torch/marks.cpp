// run.every() and run.save_every(): what all workers do together at marks in samples.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "torch/checkpoints.h"
#include "torch/distributed_impl.h"

namespace skein {

void Distributed::Impl::every(std::int64_t samples, std::function<void()> body) {
  check_between_steps("every()");
  calls().meet(fmt::format("run.every({})", samples));
  if (samples < 1) throw ConfigError(fmt::format("every({}): expected 1 sample or more", samples));
  if (!body) throw ConfigError(fmt::format("every({}): expected a function to call", samples));
  marked_.push_back({samples, Marks(samples, worker_.progress.samples), std::move(body)});
}

std::vector<Marks*> Distributed::Impl::all_marks() {
  std::vector<Marks*> all;
  all.reserve(marked_.size());
  for (Marked& each : marked_) all.push_back(&each.marks);
  return all;
}

// All workers are in a flush, some because a mark has come and some because they make no more steps
// until all have come. They count the same samples then, so the same marks are due on all of them;
// afterwards those of the second kind are in their flush again, unless nobody is left outside.
void Distributed::Impl::come_together(bool to_stay) {
  for (;;) {
    flush_strategy();
    std::int64_t staying = 0, all = 0;
    {
      // The same on all, whatever brought them here.
      const Workers::Calls::Scope no_other(calls(), "");
      const Workers::Calls::Scope call(calls(), "run.flush() or a mark of run.every()");
      const auto sums = world_.sum_integers({to_stay ? 1 : 0, 1});
      staying = sums[0], all = sums[1];
    }
    const bool seen = see_to_marks();
    if (!to_stay) {
      after_flush();
      at_rest_ = false;  // others may wait in a flush() for this worker to come to stay
      return;
    }
    if (staying < all) continue;
    if (seen) flush_strategy();
    return;
  }
}

// Returns whether a mark was due.
bool Distributed::Impl::see_to_marks() {
  struct AtMark {
    explicit AtMark(bool& flag) : at_mark(flag) { at_mark = true; }
    ~AtMark() { at_mark = false; }
    bool& at_mark;
  };
  bool seen = false;
  const std::int64_t samples = worker_.progress.samples;
  while (Marks* const due = first_due(all_marks(), samples)) {
    seen = true;
    due->pass(samples);
    const AtMark at_mark(at_mark_);
    const Workers::Calls::Scope users_code(calls(), "");
    const auto marked =
        std::ranges::find_if(marked_, [&](const Marked& each) { return &each.marks == due; });
    const std::function<void()> body = marked->body;  // which may call every()
    body();
  }
  return seen;
}

void Distributed::every(std::int64_t samples, std::function<void()> body) {
  impl_->every(samples, std::move(body));
}

void Distributed::save_every(std::int64_t samples, const std::string& folder,
                             std::function<Values()> values, const CheckpointOptions& options) {
  check_keep("save_every()", options.keep);
  const Workers::Calls::Scope call(impl_->calls(), fmt::format("run.save_every({})", samples));
  Impl* const run = impl_.get();  // this object may move
  impl_->every(samples, [run, folder, values = std::move(values), options] {
    run->save_checkpoint(folder, values ? values() : Values(), options);
  });
}

}  // namespace skein
