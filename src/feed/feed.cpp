#include "feed/feed.h"

#include <algorithm>

#include "core/rng.h"
#include "runtime/world_impl.h"

namespace skein {
namespace {

// Every worker's order of the data is its own where it draws by itself.
std::uint64_t order_seed(const FeedPlan& plan, int rank) {
  if (plan.draw != Draw::alone) return plan.seed;
  return Rng(plan.seed).split(0x64617461).split(static_cast<std::uint64_t>(rank))();
}

}  // namespace

Share share_among_present(World& world, std::int64_t samples) {
  const std::vector<bool>& present = world.impl().present();
  const auto before = std::count(present.begin(), present.begin() + world.rank(), true);
  const auto all = std::count(present.begin(), present.end(), true);
  return share_of(even_shares(samples, static_cast<int>(all)), static_cast<int>(before));
}

Feed::Feed(World& world, Channel channel, const FeedPlan& plan, const Start& start)
    : plan_(plan),
      batches_(static_cast<std::uint32_t>(plan.dataset_size), plan.batch,
               order_seed(plan, world.rank()), plan.shuffle),
      numbered_(plan.dataset_size, plan.batch, plan.total) {
  batches_.seek(start.position);
  if (plan.draw != Draw::queued) return;
  // A run that is resumed with a smaller total has fewer blocks than the first one handed out.
  const auto beyond = [this](std::int64_t block) {
    return block < 0 || block >= numbered_.count();
  };
  BlockQueue::State state = start.queue;
  std::erase_if(state.held, beyond);
  std::erase_if(state.returned, beyond);
  queue_ = std::make_unique<SharedBlocks>(world, channel, numbered_.count(), state);
}

Feed::Start Feed::after(const FeedPlan& plan, std::int64_t samples) {
  const std::int64_t epochs = samples / plan.dataset_size, offset = samples % plan.dataset_size;
  Start start{{plan.first_epoch + epochs, offset}, {}};
  if (plan.draw == Draw::queued) {
    const std::int64_t per_epoch = (plan.dataset_size + plan.batch - 1) / plan.batch;
    start.queue.next = epochs * per_epoch + offset / plan.batch;
  }
  return start;
}

Feed::Step Feed::next(std::int64_t limit) {
  if (!queue_) {
    const auto indices = plan_.draw == Draw::together ? batches_.next(limit) : batches_.next();
    return {{indices.begin(), indices.end()}, batches_.position()};
  }
  const std::int64_t block = queue_->take();
  if (block == BlockQueue::kNone) return {{}, batches_.position()};
  const auto [epoch, offset] = numbered_.position(block);
  batches_.seek({plan_.first_epoch + epoch, offset});
  const auto indices = batches_.next(numbered_.samples(block));
  return {{indices.begin(), indices.end()}, batches_.position(), block};
}

void Feed::close() {
  if (queue_) queue_->close();
}

void Feed::leave() {
  if (queue_) queue_->leave();
}

}  // namespace skein
