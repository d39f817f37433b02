#include "feed/block_queue.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/packed.h"
#include "skein/error.h"

namespace skein {
namespace {

// The last numbers of an epoch wait with those who hold them: no more than a slow network needs.
constexpr std::int64_t kFurthestAhead = 64;

// A peer that ends in an error does not say that it leaves.
constexpr Duration kLook = std::chrono::milliseconds(20);

// How many are wanted; 0: none any more. And what is given: `count` from `first` on.
struct Request {
  std::int64_t want = 0;
};
struct Reply {
  std::int64_t first = 0, count = 0;
};

}  // namespace

BlockQueue::BlockQueue(Fabric& fabric, Channel channel, Duration patience, std::int64_t count,
                       const State& state)
    : fabric_(fabric),
      channel_(channel),
      patience_(patience),
      count_(count),
      next_(state.next),
      returned_(state.returned.begin(), state.returned.end()),
      left_(fabric.loop()),
      held_(state.held.begin(), state.held.end()) {
  if (fabric.rank() != 0) return;
  for (int peer = 1; peer < fabric.size(); ++peer)
    serving_.emplace_back(fabric.loop().spawn_background(serve(peer)));
}

Task<std::int64_t> BlockQueue::take() {
  if (held_.empty()) {
    const bool asked = asking_.valid();
    ask();
    co_await settle();
    if (asked) ahead_ = std::min(2 * ahead_, kFurthestAhead);
  }
  if (held_.empty()) co_return kNone;
  const std::int64_t number = held_.front();
  held_.pop_front();
  ask();
  co_return number;
}

void BlockQueue::ask() {
  if (asking_.valid() && asking_->done()) {
    asking_->rethrow();
    asking_ = ScopedJob();
  }
  if (asking_.valid() || gone_ || std::ssize(held_) >= ahead_) return;
  asking_ = ScopedJob(fabric_.loop().spawn(asking()));
}

Task<> BlockQueue::asking() {
  const Grant got = co_await request(ahead_ - std::ssize(held_));
  for (std::int64_t i = 0; i < got.count; ++i) held_.push_back(got.first + i);
  gone_ = got.count == 0;
}

Task<BlockQueue::Grant> BlockQueue::request(std::int64_t want) {
  if (fabric_.rank() == 0) co_return grant(want);
  Request out{want};
  Reply in;
  co_await fabric_.exchange(channel_, 0, message_in(out), message_in(in), deadline());
  co_return Grant{in.first, in.count};
}

BlockQueue::Grant BlockQueue::grant(std::int64_t want) {
  if (!returned_.empty()) {
    const std::int64_t number = returned_.front();
    returned_.pop_front();
    return {number, 1};
  }
  const Grant made{next_, std::clamp<std::int64_t>(count_ - next_, 0, want)};
  next_ += made.count;
  return made;
}

// Nobody waits for this, and a peer may compute as long as it likes before it asks again: so its
// wait has no deadline. A peer that dies ends it with an error.
Task<> BlockQueue::serve(int peer) {
  for (;;) {
    Request in;
    co_await fabric_.receive(channel_, peer, message_in(in), kNever);
    if (in.want <= 0) break;
    const Grant made = grant(in.want);
    Reply out{made.first, made.count};
    co_await fabric_.send(channel_, peer, message_in(out), deadline());
  }
  left_.notify_all();
}

Task<> BlockQueue::settle() {
  if (!asking_.valid()) co_return;
  co_await asking_->join();
  asking_ = ScopedJob();
}

BlockQueue::State BlockQueue::state() const {
  return {next_, {returned_.begin(), returned_.end()}, {held_.begin(), held_.end()}};
}

void BlockQueue::leave() {
  Request none;
  if (fabric_.rank() != 0) fabric_.send_and_forget(channel_, 0, message_in(none));
}

Task<> BlockQueue::close() {
  co_await settle();
  if (fabric_.size() == 1) co_return;
  if (fabric_.rank() != 0) {
    Request none;
    co_await fabric_.send(channel_, 0, message_in(none), deadline());
    co_return;
  }
  const Deadline end = deadline();
  for (std::size_t i = 0; i < serving_.size(); ++i) {
    while (!serving_[i]->done()) {
      const bool in_time = co_await left_.wait(std::min(end, fabric_.loop().now() + kLook));
      if (!in_time && fabric_.loop().now() >= end)
        throw IoError(fmt::format("rank {} did not leave the queue of data by the deadline", i + 1),
                      static_cast<int>(i + 1));
    }
    serving_[i]->rethrow();
  }
}

}  // namespace skein
