#include <fmt/format.h>

#include <algorithm>
#include <deque>
#include <exception>

#include "plan/shares.h"
#include "runtime/load_ahead.h"
#include "torch/distributed_impl.h"

namespace skein {
namespace {

FeedPlan plan_of(Distributed::Impl& run, std::int64_t dataset_size, const ShareOptions& options) {
  FeedPlan plan{dataset_size, options.batch,   dataset_size * options.epochs, options.seed,
                Draw::queued, options.shuffle, run.number_epochs(options)};
  if (run.strategy().lockstep()) {
    plan.draw = Draw::together;
    plan.batch *= run.world().size();
  } else if (run.strategy().survives_losses()) {
    plan.draw = Draw::alone;  // a queue would end with the worker that keeps it
  }
  return plan;
}

// All workers compare what they ask for before it is looked at: what is wrong is so on all of them.
void agree_on(Distributed::Impl& run, std::int64_t dataset_size, const ShareOptions& options) {
  const auto refuse = [](const char* what, std::int64_t value, const char* expected) {
    throw ConfigError(fmt::format("share(): {} {}: expected {}", what, value, expected));
  };
  run.world().calls().meet(
      fmt::format("share of {} samples, batch {}, {} epochs{}, seed {}{}", dataset_size,
                  options.batch, options.epochs,
                  options.first_epoch ? fmt::format(" from epoch {}", *options.first_epoch) : "",
                  options.seed, options.shuffle ? "" : ", not shuffled"));
  constexpr std::int64_t kMost = std::int64_t{1} << 31;
  if (dataset_size < 1 || dataset_size > kMost)
    refuse("samples in the dataset:", dataset_size, "1 to 2^31");
  if (options.batch < 1 || options.batch > kMost) refuse("batch", options.batch, "1 to 2^31");
  if (options.epochs < 0 || options.epochs > kMost) refuse("epochs", options.epochs, "0 to 2^31");
  if (options.first_epoch.value_or(0) < 0 || options.first_epoch.value_or(0) > kMost)
    refuse("first_epoch", *options.first_epoch, "0 to 2^31");
  if (options.prefetch < 0 || options.prefetch > 1000)
    refuse("prefetch", options.prefetch, "0 to 1000");
}

}  // namespace

class ShareLoop::Impl {
 public:
  Impl(Distributed::Impl& run, std::int64_t dataset_size, const ShareOptions& options, Load load)
      : run_(run), load_(std::move(load)) {
    agree_on(run, dataset_size, options);
    plan_ = plan_of(run, dataset_size, options);
    // Nobody draws from an earlier queue any more when all have come here.
    if (plan_.draw == Draw::queued) run.flush();
    const std::int64_t skipped = options.first_epoch ? run.pass_over_epochs(dataset_size, options)
                                                     : run.pass_over(plan_.total);
    drawn_ = skipped;
    goal_ = run.worker().progress.samples + plan_.total - skipped;
    run.done(goal_);
    run.feed.reset();
    if (skipped < plan_.total)
      run.feed = std::make_unique<Feed>(run.world(), plan_, Feed::after(plan_, skipped));
    // What one holds of a queue the others cannot take.
    ahead_ = plan_.draw == Draw::queued ? std::min(1, options.prefetch) : options.prefetch;
    if (load_ && ahead_ > 0)
      loader_ = std::make_unique<LoadAhead>(
          [this](std::span<const std::uint32_t> indices) { return loaded(indices); }, false);
  }

  ~Impl() {
    if (ended_) return;
    run_.take_back();
    if (std::uncaught_exceptions() > exceptions_) {
      if (run_.feed) run_.feed->leave();
      return;
    }
    try {
      end();
    } catch (...) {  // the next call on the run says why
    }
  }

  bool next(SharedFacts& facts, std::shared_ptr<void>& value) {
    if (ended_) return false;
    settle_last();
    for (;;) {
      draw_ahead();
      if (steps_.empty() || run_.worker().all_stop ||
          (plan_.draw == Draw::alone && run_.done(goal_))) {
        end();
        return false;
      }
      const Feed::Step step = std::move(steps_.front());
      steps_.pop_front();
      draw_ahead();
      const Indices own = own_part(step);
      if (own.empty()) {  // fewer samples than workers
        run_.expect(0);
        run_.step(0);
        continue;
      }
      value = load(own);
      run_.hand_out(std::ssize(own));
      facts.indices.assign(own.begin(), own.end());
      facts.size = std::ssize(own);
      facts.epoch = step.after.offset == 0 ? step.after.epoch - 1 : step.after.epoch;
      return true;
    }
  }

 private:
  using Indices = LoadAhead::Indices;

  std::shared_ptr<void> loaded(std::span<const std::uint32_t> indices) const {
    return load_({indices.begin(), indices.end()});
  }

  // Shares may follow measured speeds, so the next steps' are only a guess, good for loading early.
  std::shared_ptr<void> load(const Indices& own) {
    if (!load_) return nullptr;
    const PhaseScope phase(run_.world().impl().board(), Phase::data);
    if (!loader_) return loaded(own);
    std::vector<Indices> wanted{own};
    for (const Feed::Step& step : steps_) {
      wanted.push_back(own_part(step));
      if (wanted.back().empty()) wanted.pop_back();
    }
    loader_->request(wanted);
    return loader_->take(own);
  }

  void draw_ahead() {
    while (!exhausted_ && run_.feed && std::ssize(steps_) <= ahead_) {
      const std::int64_t left = plan_.total - drawn_;
      if (plan_.draw == Draw::together && left == 0) return;
      Feed::Step step = run_.feed->next(left);
      drawn_ += std::ssize(step.indices);
      exhausted_ = step.indices.empty();
      if (!exhausted_) steps_.push_back(std::move(step));
    }
  }

  Indices own_part(const Feed::Step& step) const {
    if (plan_.draw != Draw::together) return step.indices;
    const Share share =
        share_of(run_.strategy().split(std::ssize(step.indices)), run_.world().rank());
    const auto first = step.indices.begin() + share.begin;
    return {first, first + share.count};
  }

  // A batch that the loop's body has left out: in lockstep the others wait for this worker's step.
  void settle_last() {
    if (!run_.handed_out()) return;
    if (run_.in_step())
      throw ConfigError(
          "a loop over share() computed gradients and went on to the next batch without step()");
    run_.take_back();
    if (plan_.draw != Draw::together) return;
    run_.expect(0);
    run_.step(0);
  }

  // All come here, after the same batches or not: then all have what all have trained.
  void end() {
    ended_ = true;
    run_.take_back();
    loader_.reset();
    run_.flush();
    if (run_.feed) run_.feed->close();
    run_.feed.reset();
  }

  Distributed::Impl& run_;
  Load load_;
  FeedPlan plan_;
  std::int64_t goal_ = 0;   // samples of the run when the loop has ended
  std::int64_t drawn_ = 0;  // of `plan_.total`
  std::ptrdiff_t ahead_ = 0;
  std::deque<Feed::Step> steps_;  // drawn, and not begun
  bool exhausted_ = false, ended_ = false;
  int exceptions_ = std::uncaught_exceptions();
  std::unique_ptr<LoadAhead> loader_;
};

void Distributed::Impl::hand_out(std::int64_t samples) {
  expect(samples);
  handed_out_ = samples;
}

void Distributed::Impl::step_handed_out() {
  if (!handed_out())
    throw ConfigError(
        "step() without a number of samples: expected a loop over share(), and one step() for each "
        "of its batches");
  step(handed_out_);
}

std::int64_t Distributed::Impl::number_epochs(const ShareOptions& options) {
  const std::int64_t first = options.first_epoch.value_or(next_epoch_);
  next_epoch_ = first + options.epochs;
  return first;
}

std::int64_t Distributed::Impl::pass_over(std::int64_t samples) {
  if (resumed_ < 0) resumed_ = worker_.progress.samples;
  const std::int64_t passed = std::min(resumed_, samples);
  resumed_ -= passed;
  if (passed == samples && passed > 0) say_that_a_loop_was_passed_over();
  return passed;
}

std::int64_t Distributed::Impl::pass_over_epochs(std::int64_t dataset_size,
                                                 const ShareOptions& options) {
  if (resumed_ < 0) resumed_ = worker_.progress.samples;
  if (resumed_ == 0) return 0;
  const std::int64_t samples = options.epochs * dataset_size;
  const std::int64_t into =
      std::max<std::int64_t>(0, worker_.progress.samples - *options.first_epoch * dataset_size);
  resumed_ = std::max<std::int64_t>(0, into - samples);
  return std::min(into, samples);
}

// Which is right where the program's loops begin with the run's first, and else a surprise.
void Distributed::Impl::say_that_a_loop_was_passed_over() {
  if (std::exchange(said_passed_over_, true)) return;
  if (world_.rank() == world_.impl().leader())
    fmt::print(
        stderr,
        "skein: a loop over share() is passed over: the run was resumed after all of its "
        "samples. One that begins with a later epoch says so by ShareOptions::first_epoch\n");
}

// A step begins: what was handed out is used, and nothing can be resumed any more.
void Distributed::Impl::note_step() {
  take_back();
  resumed_ = 0;
  if (stop_requested()) worker_.wants_to_stop = true;
}

bool Distributed::Impl::stopping() {
  stop_on_signals();
  return worker_.all_stop;
}

ShareLoop::ShareLoop(Distributed& run, std::int64_t dataset_size, const ShareOptions& options,
                     Load load)
    : impl_(std::make_unique<Impl>(run.impl(), dataset_size, options, std::move(load))) {}
ShareLoop::~ShareLoop() = default;

bool ShareLoop::next(SharedFacts& facts, std::shared_ptr<void>& value) {
  return impl_->next(facts, value);
}

SharedRange<void> Distributed::share(std::int64_t dataset_size, const ShareOptions& options) {
  return SharedRange<void>(std::make_unique<ShareLoop>(*this, dataset_size, options, nullptr));
}

SharedRange<std::vector<torch::Tensor>> Distributed::share(std::vector<torch::Tensor> tensors,
                                                           const ShareOptions& options) {
  const auto samples = [](const torch::Tensor& tensor) {
    return tensor.defined() && tensor.dim() > 0 ? tensor.size(0) : 0;
  };
  const std::int64_t size = tensors.empty() ? 0 : samples(tensors.front());
  for (const torch::Tensor& tensor : tensors)
    if (samples(tensor) != size)
      throw ConfigError(
          fmt::format("share(): one tensor has {} samples, another {}", size, samples(tensor)));
  return share(
      size,
      [tensors = std::move(tensors)](const std::vector<std::size_t>& indices) {
        const torch::Tensor rows =
            torch::tensor(std::vector<std::int64_t>(indices.begin(), indices.end()));
        std::vector<torch::Tensor> batch;
        for (const torch::Tensor& tensor : tensors)
          batch.push_back(tensor.index_select(0, rows.to(tensor.device())));
        return batch;
      },
      options);
}

SharedRange<torch::data::Example<>> Distributed::share(torch::Tensor data, torch::Tensor target,
                                                       const ShareOptions& options) {
  if (!data.defined() || !target.defined() || data.dim() == 0 || target.dim() == 0 ||
      data.size(0) != target.size(0))
    throw ConfigError("share(): expected as many targets as there are samples of data");
  return share(
      data.size(0),
      [data, target](const std::vector<std::size_t>& indices) {
        const torch::Tensor rows =
            torch::tensor(std::vector<std::int64_t>(indices.begin(), indices.end()));
        return torch::data::Example<>(data.index_select(0, rows.to(data.device())),
                                      target.index_select(0, rows.to(target.device())));
      },
      options);
}

}  // namespace skein
