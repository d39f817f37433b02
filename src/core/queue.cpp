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

Task<> until_reached(Loop& loop, Mark mark) {
  for (Duration pause = kFirstLook; !reached(mark); pause = std::min(2 * pause, kLongestLook))
    co_await loop.sleep_for(pause);
}

Queue* current_queue() { return current; }

OnQueue::OnQueue(Queue* queue) : before_(std::exchange(current, queue)) {}
OnQueue::~OnQueue() { current = before_; }

}  // namespace skein
