#include "runtime/roll_call.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "core/packed.h"

namespace skein {
namespace {

constexpr Duration kSlow = std::chrono::seconds(1);

}  // namespace

struct RollCall::Answer {
  std::int64_t calls = 0;
  std::int64_t inside = 0;
  char what[112] = {};  // ends with a zero
};

// Names what this worker is in, as long as it is: a call within a step, and then the step again.
class RollCall::Inside {
 public:
  Inside(RollCall& roll_call, std::string what)
      : roll_call_(roll_call),
        was_inside_(std::exchange(roll_call.inside_, true)),
        before_(std::exchange(roll_call.what_, std::move(what))) {}
  Inside(const Inside&) = delete;
  Inside& operator=(const Inside&) = delete;
  ~Inside() {
    roll_call_.inside_ = was_inside_;
    if (was_inside_) roll_call_.what_ = std::move(before_);
  }

 private:
  RollCall& roll_call_;
  bool was_inside_;
  std::string before_;
};

RollCall::RollCall(Fabric& fabric, Channel questions, Channel answers, Duration patience)
    : fabric_(fabric),
      questions_(questions),
      answers_(answers),
      slow_(std::min<Duration>(kSlow, patience / 8)) {}

Task<> RollCall::attend(Task<> task, std::string what) {
  ++calls_;
  co_await attend_uncounted(std::move(task), std::move(what));
}

Task<> RollCall::attend_uncounted(Task<> task, std::string what) {
  const Inside inside(*this, std::move(what));
  const ScopedJob later(
      listening_.empty() && fabric_.size() > 1 ? fabric_.loop().spawn(listen_later()) : Job());
  co_await task;
}

// From then on for good: a receive that is called off would break the line of questions.
Task<> RollCall::listen_later() {
  co_await fabric_.loop().sleep_for(slow_);
  if (!listening_.empty()) co_return;  // a call within a step was slow
  for (int peer = 0; peer < fabric_.size(); ++peer)
    if (peer != fabric_.rank()) listening_.emplace_back(fabric_.loop().spawn(answer(peer)));
}

Task<> RollCall::answer(int peer) {
  for (;;) {
    std::int64_t asked = 0;
    co_await fabric_.receive(questions_, peer, message_in(asked), kNever);
    Answer mine{calls_, inside_ ? 1 : 0, {}};
    std::memcpy(mine.what, what_.data(), std::min(what_.size(), sizeof(mine.what) - 1));
    fabric_.send_and_forget(answers_, peer, message_in(mine));
  }
}

// One that came a moment ago does not listen yet.
Task<> RollCall::ask(std::vector<Standing>& standings, Duration patience) {
  const Deadline end = fabric_.loop().now() + patience;
  for (int peer = 0; peer < fabric_.size(); ++peer)
    if (peer != fabric_.rank()) fabric_.send_and_forget(questions_, peer, message_in(calls_));
  for (int peer = 0; peer < fabric_.size(); ++peer) {
    if (peer == fabric_.rank()) continue;
    Answer theirs;
    Standing standing;
    standing.rank = peer;
    try {
      co_await fabric_.receive(answers_, peer, message_in(theirs), end);
      theirs.what[sizeof(theirs.what) - 1] = '\0';
      standing.answered = true;
      standing.came = theirs.calls >= calls_;
      standing.inside = theirs.inside != 0;
      standing.what = theirs.what;
    } catch (const TooLate&) {  // it does not listen
    } catch (const IoError&) {
      standing.gone = true;
    }
    standings.push_back(std::move(standing));
  }
}

}  // namespace skein
