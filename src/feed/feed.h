// Which samples each worker computes, step after step.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "feed/shared_blocks.h"
#include "plan/sampler.h"
#include "plan/shares.h"
#include "skein/world.h"

namespace skein {

// This worker's part of `samples` that the workers divide evenly, each once: among those that took
// part in the last call of the world.
Share share_among_present(World& world, std::int64_t samples);

// How workers divide the data among themselves.
enum class Draw : std::uint8_t {
  together,  // in lockstep: all make a step of one global batch, each with its share
  queued,    // each takes the next batch from one queue, as it can
  alone      // each from an order of its own, for ever
};

struct FeedPlan {
  std::int64_t dataset_size = 1;
  std::int64_t batch = 1;  // of all workers where they draw together, else of one
  std::int64_t total = 1;  // samples over all epochs
  std::uint64_t seed = 0;
  Draw draw = Draw::together;
  bool shuffle = true;
  std::int64_t first_epoch = 0;  // its number: each epoch has an order of its own
};

// Every worker has one, made with the same plan. Not thread-safe.
class Feed {
 public:
  // The samples of all workers in one step, or of this one where they do not draw together; where
  // the data stand after it, and its number in the queue, if there is one.
  struct Step {
    std::vector<std::uint32_t> indices;
    GlobalBatches::Position after;
    std::int64_t block = BlockQueue::kNone;
  };

  // Where the data stand; `queue` where workers draw from one.
  struct Start {
    GlobalBatches::Position position;
    BlockQueue::State queue;
  };

  // `channel` is for the queue, where there is one.
  Feed(World& world, Channel channel, const FeedPlan& plan, const Start& start);

  // As if all batches up to this many samples had been handed out, in their order.
  static Start after(const FeedPlan& plan, std::int64_t samples);

  // The next step, of at most `limit` samples where workers draw together. An empty one when the
  // queue has no more; then others may still compute what they took.
  Step next(std::int64_t limit);

  // Where the data stand before the next step is drawn.
  GlobalBatches::Position position() const { return batches_.position(); }

  // All workers call it: where the queue stands when all have come; nothing where there is none.
  BlockQueue::State settled() { return queue_ ? queue_->settled() : BlockQueue::State(); }

  // All workers call it when they draw no more.
  void close();

  // This worker alone draws no more. What it has drawn and not computed is lost, and the others go
  // on; it keeps this until all have come together.
  void leave();

 private:
  FeedPlan plan_;
  GlobalBatches batches_;
  NumberedBatches numbered_;
  std::unique_ptr<SharedBlocks> queue_;  // null: nobody draws from one
};

}  // namespace skein
