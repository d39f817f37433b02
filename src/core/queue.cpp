#include "core/queue.h"

#include <algorithm>

namespace skein {
namespace {

// How long to sleep between two looks at a mark: a part of how long it has taken already, so that
// nobody hears of it much later than it comes, and never so short that looking costs anything.
constexpr Duration kShortestSleep = std::chrono::microseconds(20);
constexpr Duration kLongestSleep = std::chrono::milliseconds(1);
constexpr int kPart = 8;

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
  for (const Time begin = loop.now(); !reached(loop, mark);)
    co_await loop.sleep_for(
        std::clamp((loop.now() - begin) / kPart, kShortestSleep, kLongestSleep));
}

Allocate allocator_of(Queue* queue) {
  if (!queue) return allocate_on_heap;
  return [queue](std::size_t count) { return queue->allocate(count, Type::f32); };
}

Queue* current_queue() { return current; }

OnQueue::OnQueue(Queue* queue) : before_(std::exchange(current, queue)) {}
OnQueue::~OnQueue() { current = before_; }

}  // namespace skein
