// The watch over what has been launched: who is lost, what takes too long, what NCCL says.
#include <fmt/format.h>

#include "core/packed.h"
#include "fabric/nccl/nccl_fabric.h"
#include "skein/error.h"

namespace skein {

using nccl::Note;

namespace {

// A channel that nobody else comes to. The next and last is that of meetings.
constexpr Channel kNotes = kMostChannels - 2;

// How often marks are looked at, and NCCL is asked for errors.
constexpr Duration kTick = std::chrono::milliseconds(20);
constexpr Duration kAskEvery = std::chrono::milliseconds(100);

// What is under way may end without a peer that has left; where somebody has had an error already,
// that is not waited for as long.
constexpr Duration kGrace = std::chrono::seconds(2);
constexpr Duration kShortGrace = std::chrono::milliseconds(300);

// How long one who has an error to throw waits for its cause to be told, for that of a queue that
// is stuck to be known, and for an abort.
constexpr Duration kToBeTold = std::chrono::milliseconds(50);
constexpr Duration kToNotice = std::chrono::milliseconds(300);
constexpr Duration kToAbort = std::chrono::seconds(10);

}  // namespace

// Rank 0 listens to all, all to rank 0: what one knows, all do in two hops.
void NcclFabric::begin_to_watch() {
  grace_ = kGrace;
  if (!watching_.empty()) return;
  watching_.emplace_back(loop().spawn(keep_watch()));
  if (rank() != 0) {
    watching_.emplace_back(loop().spawn(listen(0)));
    return;
  }
  for (int peer = 1; peer < size(); ++peer) watching_.emplace_back(loop().spawn(listen(peer)));
}

Task<> NcclFabric::listen(int peer) {
  const Operation operation{"NCCL's watch", kNotes, 0, kNever};
  try {
    for (;;) {
      Note note;
      co_await control_->receive_into(operation, peer, message_in(note), Combine::copy);
      heed(peer, note);
    }
  } catch (const IoError& error) {
    lose(peer, error.what());
  }
}

void NcclFabric::heed(int from, const Note& note) {
  switch (note.kind) {
    case Note::lost:
      return lose(note.peer, note.why.str());
    case Note::over:
      return end_nccl(note.why.str(), note.peer);
    case Note::ask:
      return grant(from, note.peer, note.channel);
    case Note::grant:
      return granted(note.peer, note.channel, note.number);
    default:
      return end_nccl(fmt::format("rank {} said something unknown", from), from);
  }
}

// The first loss counts, and from then on what is under way has its grace. But that rank 0 has left
// as well must be known: exchanges wait for numbers, which only rank 0 gives.
void NcclFabric::lose(int peer, const std::string& why) {
  if (lost_ && (peer != 0 || lost_->peer == 0)) return;
  lost_ = {why, peer, lost_ ? lost_->noticed : loop().now()};
  if (rank() == 0) {
    Note note{Note::lost, peer, 0, 0, 0, {}};
    note.why.say(why);
    untold_.push_back(note);
  }
  changed_.notify_all();
  attention_.notify_all();
}

// From wherever it is called, a destructor included: what is to be told is told later.
void NcclFabric::end_nccl(const std::string& why, int peer) {
  if (!over_.empty()) return;
  over_ = why;
  over_by_ = peer;
  Note note{Note::over, peer, 0, 0, 0, {}};
  note.why.say(why);
  untold_.push_back(note);
  if (comm_) comm_->abort();
  changed_.notify_all();
  attention_.notify_all();
}

void NcclFabric::tell(int peer, Note note) {
  count_meeting(sizeof(note));
  control_->send_and_forget(kNotes, peer, message_in(note));
}

void NcclFabric::tell_others() {
  for (const Note& note : std::exchange(untold_, {})) {
    if (rank() != 0) {
      tell(0, note);
      continue;
    }
    for (int peer = 1; peer < size(); ++peer) tell(peer, note);
  }
}

Task<> NcclFabric::keep_watch() {
  for (;;) {
    tell_others();
    const Deadline next = in_flight_.empty() ? kNever : loop().now() + kTick;
    co_await attention_.wait(next);
    look();
  }
}

// Marks alone are looked at, but for the communicator's error now and then.
void NcclFabric::look() {
  const Time now = loop().now();
  try {
    while (!in_flight_.empty() && reached(in_flight_.front().end)) in_flight_.pop_front();
    if (!in_flight_.empty() && !in_flight_.front().started && reached(in_flight_.front().start))
      in_flight_.front().started = now;
  } catch (const Error& error) {
    end_nccl(fmt::format("rank {}: {}", rank(), error.what()), -1);
    in_flight_.clear();
  }
  if (in_flight_.empty()) return settled_.notify_all();
  if (!over_.empty()) return;
  const InFlight& first = in_flight_.front();
  if (lost_ && now - lost_->noticed >= grace_) return end_nccl(lost_->why, lost_->peer);
  const Time since = first.by_silence ? std::max(first.started.value_or(now), latest_sign())
                                      : first.started.value_or(now);
  if (now - since > first.allowance)
    return end_nccl(fmt::format("{}: NCCL did not end it on rank {} within {:.1f} s of its start",
                                first.what, rank(), seconds(first.allowance)),
                    -1);
  if (now - asked_ < kAskEvery) return;
  asked_ = now;
  if (const nccl::Result state = comm_->state();
      state != nccl::Result::success && state != nccl::Result::in_progress)
    end_nccl(fmt::format("rank {}: {}", rank(), comm_->what_is_wrong(state)), -1);
}

// When it ends nothing that is under way waits for one that is lost, if that can be, and the others
// have been told what this rank knows.
Task<> NcclFabric::settle() {
  const Time begin = loop().now();
  if (comm_ && over_.empty()) co_await changed_.wait(begin + kToBeTold);
  tell_others();
  co_await loop().yield();
  std::optional<Time> aborted;
  grace_ = kShortGrace;
  for (look(); !in_flight_.empty(); look()) {
    const Time now = loop().now();
    if (!over_.empty() && !aborted) aborted = now;
    if (aborted ? now - *aborted >= kToAbort : !lost_ && now - begin >= kToNotice) co_return;
    attention_.notify_all();
    co_await settled_.wait(now + kTick);
  }
}

}  // namespace skein
