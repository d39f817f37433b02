// A loop over a dataset that all workers evaluate together.
#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "feed/feed.h"
#include "torch/distributed_impl.h"
#include "torch/share_loop.h"

namespace skein {
namespace {

// Each worker has a part of the dataset that is its own from the beginning of the loop: nothing is
// asked of the others, so the loop ends on each by itself. The part of a worker that is lost in the
// middle of the loop is missing from what the others count.
class EvaluationLoop final : public ShareLoop::Impl {
 public:
  EvaluationLoop(Distributed::Impl& run, std::int64_t dataset_size, const ShareOptions& options,
                 ShareLoop::Load load)
      : batch_(options.batch),
        loads_(run.world().impl().board(), std::move(load), options.prefetch) {
    agree_on_loop(run,
                  fmt::format("run.share() of {} samples to evaluate, batch {}{}", dataset_size,
                              options.batch,
                              options.epochs == 1 && !options.first_epoch ? "" : ", with epochs"),
                  dataset_size, options);
    if (options.epochs != 1 || options.first_epoch)
      throw ConfigError(
          "share(): a loop with .evaluate = true shows every sample once; expected neither "
          "epochs nor first_epoch");
    const Share part = share_among_present(run.world(), dataset_size);
    next_ = part.begin;
    end_ = part.begin + part.count;
  }

  bool next(SharedFacts& facts, std::shared_ptr<void>& value) override {
    if (next_ == end_) {
      loads_.stop();
      return false;
    }
    const BatchLoads::Indices own = batch_at(next_);
    std::vector<BatchLoads::Indices> upcoming;
    for (std::ptrdiff_t i = 1; i <= loads_.ahead() && next_ + i * batch_ < end_; ++i)
      upcoming.push_back(batch_at(next_ + i * batch_));
    value = loads_.take(own, upcoming);
    next_ += std::ssize(own);
    facts.indices.assign(own.begin(), own.end());
    facts.size = std::ssize(own);
    facts.epoch = 0;
    return true;
  }

 private:
  BatchLoads::Indices batch_at(std::int64_t first) const {
    BatchLoads::Indices indices(static_cast<std::size_t>(std::min(batch_, end_ - first)));
    std::iota(indices.begin(), indices.end(), static_cast<std::uint32_t>(first));
    return indices;
  }

  std::int64_t batch_;
  std::int64_t next_ = 0, end_ = 0;  // of this worker's part
  BatchLoads loads_;
};

}  // namespace

std::unique_ptr<ShareLoop::Impl> evaluation_loop(Distributed::Impl& run, std::int64_t dataset_size,
                                                 const ShareOptions& options,
                                                 ShareLoop::Load load) {
  return std::make_unique<EvaluationLoop>(run, dataset_size, options, std::move(load));
}

}  // namespace skein
