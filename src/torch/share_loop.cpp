#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <deque>
#include <exception>

#include "core/packed.h"
#include "plan/shares.h"
#include "torch/distributed_impl.h"
#include "torch/share_loop.h"

namespace skein {
namespace {

bool is_queued(Distributed::Impl& run) {
  return !run.strategy().lockstep() && !run.strategy().survives_losses();
}

FeedPlan plan_of(Distributed::Impl& run, std::int64_t dataset_size, const ShareOptions& options) {
  FeedPlan plan{dataset_size, options.batch,   dataset_size * options.epochs,    options.seed,
                Draw::queued, options.shuffle, run.data().number_epochs(options)};
  if (run.strategy().lockstep()) {
    plan.draw = Draw::together;
    plan.batch *= run.world().size();
  } else if (run.strategy().survives_losses()) {
    plan.draw = Draw::alone;  // a queue would end with the worker that keeps it
  }
  return plan;
}

// What a worker says at the end of a loop.
struct LoopEnd {
  std::int64_t batches = 0;     // that its body was given
  std::int64_t steps = 0;       // of those
  std::int64_t broken_off = 0;  // 1: it ended before all were handed out
};

class TrainingLoop final : public ShareLoop::Impl {
 public:
  TrainingLoop(Distributed::Impl& run, std::int64_t dataset_size, const ShareOptions& options,
               ShareLoop::Load load)
      : run_(run),
        // What one holds of a queue the others cannot take.
        loads_(run.world().impl().board(), std::move(load),
               is_queued(run) ? std::min(1, options.prefetch) : options.prefetch) {
    if (run.data().in_loop() && !run.averages().evaluating())
      throw ConfigError(
          "share(): a loop over share() of this run has not ended; expected one after the other, "
          "or .evaluate = true for a loop inside evaluate()");
    // Workers may come after different numbers of steps. When all have come, nobody draws from an
    // earlier queue any more.
    if (!run.averages().evaluating()) {
      const Workers::Calls::Scope call(run.calls(), "run.share()");
      run.flush();
    }
    agree_on_loop(
        run,
        fmt::format("run.share() of {} samples, batch {}, {} epochs{}, seed {}{}", dataset_size,
                    options.batch, options.epochs,
                    options.first_epoch ? fmt::format(" from epoch {}", *options.first_epoch) : "",
                    options.seed, options.shuffle ? "" : ", not shuffled"),
        dataset_size, options);
    if (run.averages().evaluating())
      throw ConfigError(
          "share() inside evaluate() would train the model; expected "
          "run.share(…, {.evaluate = true}), whose loop shows every sample once and makes no step");
    plan_ = plan_of(run, dataset_size, options);
    const Workers::Calls::Scope call(run.calls(), "run.share()");
    drawn_ = run.data().pass_over(dataset_size, options);
    part_ = plan_.total - drawn_;
    goal_ = run.worker().progress.samples + part_;
    run.done(goal_);
    run.data().open(plan_, drawn_);
  }

  ~TrainingLoop() override {
    if (ended_) return;
    if (std::uncaught_exceptions() > exceptions_) {
      run_.data().end_loop();
      run_.data().leave();
      return;
    }
    try {
      end(true);
    } catch (const ConfigError& error) {
      run_.cannot_go_on(error.what());
    } catch (...) {  // the next call on the run says why
    }
  }

  bool next(SharedFacts& facts, std::shared_ptr<void>& value) override {
    if (ended_) return false;
    settle_last();
    for (;;) {
      draw_ahead();
      if (steps_.empty() || run_.worker().all_stop ||
          (plan_.draw == Draw::alone && (run_.done(goal_) || nothing_comes_of_it()))) {
        end(false);
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
      value = loads_.take(own, upcoming());
      run_.expect(std::ssize(own));
      run_.data().hand_out(std::ssize(own));
      ++shown_.batches;
      shown_samples_ += std::ssize(own);
      facts.indices.assign(own.begin(), own.end());
      facts.size = std::ssize(own);
      facts.epoch = step.after.offset == 0 ? step.after.epoch - 1 : step.after.epoch;
      return true;
    }
  }

 private:
  using Indices = LoadAhead::Indices;

  // Shares may follow measured speeds, so the next steps' are only a guess, good for loading early.
  std::vector<Indices> upcoming() const {
    std::vector<Indices> wanted;
    for (const Feed::Step& step : steps_) {
      wanted.push_back(own_part(step));
      if (wanted.back().empty()) wanted.pop_back();
    }
    return wanted;
  }

  void draw_ahead() {
    while (!exhausted_ && run_.data().feed() && std::ssize(steps_) <= loads_.ahead()) {
      const std::int64_t left = plan_.total - drawn_;
      if (plan_.draw == Draw::together && left == 0) return;
      Feed::Step step = run_.data().feed()->next(left);
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
    if (!run_.data().handed_out()) {
      shown_.steps += shown_.batches > 0 ? 1 : 0;
      return;
    }
    if (run_.in_step())
      throw ConfigError(
          "a loop over share() computed gradients and went on to the next batch without step()");
    run_.data().take_back();
    if (plan_.draw != Draw::together) return;
    run_.expect(0);
    run_.step(0);
  }

  // Where samples are counted by steps alone, a body without any would go on for ever.
  bool nothing_comes_of_it() const { return shown_.steps == 0 && shown_samples_ >= part_; }

  // All come here, after the same batches or not: then all have what all have trained. They compare
  // where they are, since a worker may have come to another flush().
  void end(bool broken_off) {
    ended_ = true;
    run_.data().end_loop();
    loads_.stop();
    const Workers::Calls::Scope call(run_.calls(), "the end of a loop over run.share()");
    LoopEnd all;
    try {
      run_.flush();
      all = ends_of_all(broken_off);
    } catch (...) {
      run_.data().leave();
      throw;
    }
    run_.data().close();
    if (all.batches > 0 && all.steps == 0 && all.broken_off == 0)
      throw ConfigError(
          "the body of a loop over share() made no step on any worker; expected one step() for "
          "each batch, or .evaluate = true for a loop that does not train");
  }

  LoopEnd ends_of_all(bool broken_off) {
    shown_.broken_off = broken_off || run_.worker().all_stop ? 1 : 0;
    std::array<std::byte, sizeof(LoopEnd)> own{};
    pack<LoopEnd>(own, shown_);
    LoopEnd all;
    for (const auto& row : run_.world().calls().meet("what came of it", own)) {
      if (row.empty()) continue;
      const auto theirs = unpack<LoopEnd>(row);
      all.batches += theirs.batches;
      all.steps += theirs.steps;
      all.broken_off += theirs.broken_off;
    }
    return all;
  }

  Distributed::Impl& run_;
  FeedPlan plan_;
  std::int64_t part_ = 0;         // of `plan_.total`: what is left of it for this loop
  std::int64_t goal_ = 0;         // samples of the run when the loop has ended
  std::int64_t drawn_ = 0;        // of `plan_.total`
  std::deque<Feed::Step> steps_;  // drawn, and not begun
  LoopEnd shown_;
  std::int64_t shown_samples_ = 0;
  bool exhausted_ = false, ended_ = false;
  int exceptions_ = std::uncaught_exceptions();
  BatchLoads loads_;
};

}  // namespace

void agree_on_loop(Distributed::Impl& run, const std::string& call, std::int64_t dataset_size,
                   const ShareOptions& options) {
  const auto refuse = [](const char* what, std::int64_t value, const char* expected) {
    throw ConfigError(fmt::format("share(): {} {}: expected {}", what, value, expected));
  };
  run.world().calls().meet(call);
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

BatchLoads::BatchLoads(Board& board, ShareLoop::Load load, std::ptrdiff_t ahead)
    : board_(board), load_(std::move(load)), ahead_(ahead) {
  if (load_ && ahead_ > 0)
    loader_ = std::make_unique<LoadAhead>(
        [this](std::span<const std::uint32_t> indices) {
          return load_({indices.begin(), indices.end()});
        },
        false);
}

std::shared_ptr<void> BatchLoads::take(const Indices& own, std::span<const Indices> upcoming) {
  if (!load_) return nullptr;
  const PhaseScope phase(board_, Phase::data);
  if (!loader_) return load_({own.begin(), own.end()});
  std::vector<Indices> wanted{own};
  wanted.insert(wanted.end(), upcoming.begin(), upcoming.end());
  loader_->request(wanted);
  return loader_->take(own);
}

std::unique_ptr<ShareLoop::Impl> training_loop(Distributed::Impl& run, std::int64_t dataset_size,
                                               const ShareOptions& options, ShareLoop::Load load) {
  return std::make_unique<TrainingLoop>(run, dataset_size, options, std::move(load));
}

ShareLoop::ShareLoop(Distributed& run, std::int64_t dataset_size, const ShareOptions& options,
                     Load load)
    : impl_((options.evaluate ? evaluation_loop : training_loop)(run.impl(), dataset_size, options,
                                                                 std::move(load))) {}
ShareLoop::~ShareLoop() {
  if (!impl_->here()) (void)impl_.release();
}

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
