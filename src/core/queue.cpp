#include "core/queue.h"

#include <algorithm>

namespace skein {
namespace {

// How long to sleep between two looks at a mark: short while it may come at once, and never so
// often that looking costs anything.
constexpr Duration kFirstLook = std::chrono::microseconds(20);
constexpr Duration kLongestLook = std::chrono::milliseconds(1);

thread_local Queue* current = nullptr;

}  // namespace

bool reached(Loop& loop, const Mark& mark) {
  if (reached(mark)) return true;
  if (!loop.clock().stands_still()) return false;
  loop.queue()->wait(mark);
  loop.queue()->finish();
  return true;
}

Task<> until_reached(Loop& loop, Mark mark) {
  for (Duration pause = kFirstLook; !reached(loop, mark); pause = std::min(2 * pause, kLongestLook))
    co_await loop.sleep_for(pause);
}

Allocate allocator_of(Queue* queue) {
  if (!queue) return allocate_on_heap;
  return [queue](std::size_t count) { return queue->allocate(count, Type::f32); };
}

Queue* current_queue() { return current; }

OnQueue::OnQueue(Queue* queue) : before_(std::exchange(current, queue)) {}
OnQueue::~OnQueue() { current = before_; }

}  // namespace skein
