#include "runtime/roll_call.h"

#include <algorithm>

#include "core/packed.h"

namespace skein {
namespace {

constexpr Duration kSlow = std::chrono::seconds(1);

}  // namespace

RollCall::RollCall(Fabric& fabric, Channel questions, Channel answers, Duration patience)
    : fabric_(fabric),
      questions_(questions),
      answers_(answers),
      slow_(std::min<Duration>(kSlow, patience / 8)) {}

Task<> RollCall::attend(Task<> task) {
  ++calls_;
  const ScopedJob later(
      listening_.empty() && fabric_.size() > 1 ? fabric_.loop().spawn(listen_later()) : Job());
  co_await task;
}

// From then on for good: a receive that is called off would break the line of questions.
Task<> RollCall::listen_later() {
  co_await fabric_.loop().sleep_for(slow_);
  for (int peer = 0; peer < fabric_.size(); ++peer)
    if (peer != fabric_.rank()) listening_.emplace_back(fabric_.loop().spawn(answer(peer)));
}

Task<> RollCall::answer(int peer) {
  for (;;) {
    std::int64_t asked = 0;
    co_await fabric_.receive(questions_, peer, message_in(asked), kNever);
    fabric_.send_and_forget(answers_, peer, message_in(calls_));
  }
}

// One that came a moment ago does not listen yet.
Task<> RollCall::missing(std::vector<int>& ranks) {
  const Deadline end = fabric_.loop().now() + 3 * slow_;
  for (int peer = 0; peer < fabric_.size(); ++peer)
    if (peer != fabric_.rank()) fabric_.send_and_forget(questions_, peer, message_in(calls_));
  for (int peer = 0; peer < fabric_.size(); ++peer) {
    if (peer == fabric_.rank()) continue;
    std::int64_t theirs = 0;
    try {
      co_await fabric_.receive(answers_, peer, message_in(theirs), end);
    } catch (const IoError&) {  // it does not listen, or is lost
    }
    if (theirs < calls_) ranks.push_back(peer);
  }
}

}  // namespace skein
