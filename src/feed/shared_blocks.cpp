#include "feed/shared_blocks.h"

#include "runtime/world_impl.h"

namespace skein {

SharedBlocks::SharedBlocks(World& world, Channel channel, std::int64_t count,
                           const BlockQueue::State& state)
    : world_(world) {
  world.impl().courier().with_loop([&] {
    queue_ = std::make_unique<BlockQueue>(world.impl().fabric(), channel,
                                          world.impl().options().patience, count, state);
  });
}

SharedBlocks::~SharedBlocks() {
  world_.impl().courier().with_loop([this] { queue_.reset(); });
}

namespace {

Task<> take_into(BlockQueue& queue, std::int64_t& number) { number = co_await queue.take(); }

}  // namespace

std::int64_t SharedBlocks::take() {
  std::int64_t number = BlockQueue::kNone;
  world_.impl().courier().wait(take_into(*queue_, number));
  return number;
}

void SharedBlocks::close() { world_.impl().courier().wait(queue_->close()); }

void SharedBlocks::leave() {
  world_.impl().courier().with_loop([this] { queue_->leave(); });
}

BlockQueue::State SharedBlocks::settled() {
  world_.impl().courier().wait(queue_->settle());
  world_.barrier();
  BlockQueue::State state;
  world_.impl().courier().with_loop([&] { state = queue_->state(); });
  world_.barrier();
  return state;
}

}  // namespace skein
