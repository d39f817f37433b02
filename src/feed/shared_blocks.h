// A BlockQueue as a worker's own thread uses it.
#pragma once

#include <memory>

#include "feed/block_queue.h"
#include "skein/world.h"

namespace skein {

// All workers make one and end it by close(). Goes before the world does. Not thread-safe.
class SharedBlocks {
 public:
  // Nothing else uses the channel meanwhile.
  SharedBlocks(World& world, Channel channel, std::int64_t count, const BlockQueue::State& state);
  SharedBlocks(const SharedBlocks&) = delete;
  SharedBlocks& operator=(const SharedBlocks&) = delete;
  ~SharedBlocks();

  // See BlockQueue.
  std::int64_t take();
  void close();
  void leave();

  // All workers call it: where the queue stands when all have come.
  BlockQueue::State settled();

 private:
  World& world_;
  std::unique_ptr<BlockQueue> queue_;
};

}  // namespace skein
