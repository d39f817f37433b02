// One order of launches on all ranks: rank 0 gives numbers to what all have come to.
#include <fmt/format.h>

#include <thread>

#include "core/on_exit.h"
#include "core/packed.h"
#include "fabric/nccl/nccl_fabric.h"
#include "skein/error.h"

namespace skein {

using nccl::Announcement;
using nccl::Ticket;

namespace {

// How much longer the others wait for rank 0, which says whom it has waited for.
constexpr Duration kForAnAnswer = std::chrono::milliseconds(400);

// NCCL puts an operation on the queue by a thread of its own: that takes some microseconds, or
// seconds where connections are made first.
constexpr Duration kShortly = std::chrono::microseconds(100);
constexpr Duration kShortestSleep = std::chrono::microseconds(20);
constexpr Duration kLongestSleep = std::chrono::milliseconds(1);

// How long one that is called off in the middle of it waits for that.
constexpr Duration kCalledOff = std::chrono::seconds(1);

}  // namespace

// Lets those who wait for an answer of this rank, or for its word, know when there will be none.
class NcclFabric::Leading {
 public:
  Leading(NcclFabric& fabric, const Operation& operation)
      : fabric_(fabric), operation_(operation) {}
  Leading(const Leading&) = delete;
  Leading& operator=(const Leading&) = delete;
  ~Leading() {
    Fabric& control = *fabric_.control_;
    if (ended) return;
    if (fabric_.rank() != 0) control.give_up_sends(operation_);
    if (fabric_.rank() != 0) return;
    for (int peer = 1; peer < fabric_.size(); ++peer) control.give_up_sends_to(operation_, peer);
  }
  bool ended = false;

 private:
  NcclFabric& fabric_;
  const Operation& operation_;
};

// What an error leaves on the queue is seen to before anybody hears of it: who does may wait for
// the queue next. Where NCCL is over, why says more than who left first because of it.
Task<> NcclFabric::on_control(const Operation& operation, Task<> body) {
  std::exception_ptr error;
  try {
    co_await body;
  } catch (const IoError&) {
    error = std::current_exception();
  }
  if (!error) co_return;
  co_await settle();
  check_not_over(operation);
  std::rethrow_exception(error);
}

// Others launch what this rank has a number for: if it does not, they would wait for it for ever.
Task<> NcclFabric::pledged(const Operation& operation, Task<> body) {
  bool kept = false;
  const OnExit gives_up([&] {
    if (!kept)
      end_nccl(fmt::format("rank {} has given up {}", rank(), describe(operation)), rank());
  });
  try {
    co_await body;
  } catch (const IoError& error) {
    end_nccl(error.what(), error.peer());
    throw;
  }
  kept = true;
}

Task<> NcclFabric::collective(const Operation& operation, Announcement what, Stages stages) {
  if (rank() == 0)
    co_await on_control(operation, lead(operation, what, stages));
  else
    co_await on_control(operation, follow(operation, what, stages));
}

void NcclFabric::check_not_over(const Operation& operation) const {
  if (!over_.empty()) throw IoError(fmt::format("{}: {}", describe(operation), over_), over_by_);
}

Duration NcclFabric::allowance(const Operation& operation) const {
  const Time now = loop().now();
  return operation.limit.never() ? Duration::max() : operation.limit.end(now, {}) - now;
}

// What a peer has come to, and whether that is the same; `answer` says if not.
Task<> NcclFabric::hear(const Operation& operation, int peer, const Announcement& own,
                        Ticket& answer) {
  Announcement theirs;
  try {
    co_await control_->receive_into(operation, peer, message_in(theirs), Combine::copy);
    if (theirs == own) co_return;
    answer.why.say(fmt::format("{}: rank 0 has {} elements, rank {} has {}{}", describe(operation),
                               own.count, peer, theirs.count,
                               theirs.count == own.count ? " of something else" : ""));
    answer.peer = peer;
  } catch (const IoError& error) {
    answer.why.say(error.what());
    answer.peer = error.peer();
  }
  answer.refused = 1;
}

Task<> NcclFabric::lead(const Operation& operation, Announcement what, const Stages& stages) {
  check_not_over(operation);
  const Duration longest = allowance(operation);
  const auto peers = static_cast<std::size_t>(size()) - 1;
  Leading leading(*this, operation);
  std::vector<Ticket> tickets(peers + 1);
  for (int peer = 1; peer < size() && tickets[0].refused == 0; ++peer)
    co_await hear(operation, peer, what, tickets[0]);
  count_meeting(peers * sizeof(Ticket));
  if (tickets[0].refused != 0) {
    leading.ended = true;
    for (int peer = 1; peer < size(); ++peer)
      control_->send_and_forget(operation.channel, peer, message_in(tickets[0]));
    throw IoError(tickets[0].why.str(), tickets[0].peer);
  }
  check_not_over(operation);
  for (std::size_t r = 0; r <= peers; ++r) tickets[r].number = numbers_[r]++;
  co_await pledged(operation, hand_out(operation, tickets, stages, longest));
  leading.ended = true;
}

Task<> NcclFabric::hand_out(const Operation& operation, std::vector<Ticket>& tickets,
                            const Stages& stages, Duration longest) {
  for (int peer = 1; peer < size(); ++peer)
    co_await control_->start_send(operation, peer,
                                  message_in(tickets[static_cast<std::size_t>(peer)]));
  co_await launch(operation, tickets[0].number, stages, longest);
  // One that has given up meanwhile does not take its ticket.
  for (int peer = 1; peer < size(); ++peer) co_await control_->finish_sends(operation, peer);
}

Task<> NcclFabric::follow(const Operation& operation, Announcement what, const Stages& stages) {
  check_not_over(operation);
  const Duration longest = allowance(operation);
  Leading leading(*this, operation);
  count_meeting(sizeof(what));
  co_await control_->start_send(operation, 0, message_in(what));
  Operation answer = operation;
  answer.limit = operation.limit.later(kForAnAnswer);
  Ticket ticket;
  co_await control_->receive_into(answer, 0, message_in(ticket), Combine::copy);
  if (ticket.refused != 0) throw IoError(ticket.why.str(), ticket.peer);
  co_await pledged(operation, launch(operation, ticket.number, stages, longest));
  co_await control_->finish_sends(operation, 0);
  leading.ended = true;
}

// A turn of this rank's launches. Nothing else is launched before it is over, nor is it over before
// what was put is on the queue, or NCCL is.
class NcclFabric::Launching {
 public:
  Launching(NcclFabric& fabric, const Operation& operation, Duration allowance)
      : fabric_(fabric),
        operation_(operation),
        allowance_(allowance),
        start_(fabric.comm_->queue().record()) {}
  Launching(const Launching&) = delete;
  Launching& operator=(const Launching&) = delete;
  ~Launching() {
    if (succeeded || fabric_.comm_->aborted()) return;
    const SteadyClock clock;
    for (const Time until = clock.now() + kCalledOff;
         fabric_.comm_->state() == nccl::Result::in_progress && clock.now() < until;)
      std::this_thread::sleep_for(kShortestSleep);
  }

  bool succeeded = false;

  void end() {
    fabric_.in_flight_.push_back({describe(operation_), std::move(start_),
                                  fabric_.comm_->queue().record(), allowance_,
                                  operation_.limit.by_silence(), std::nullopt});
    ++fabric_.launched_;
    succeeded = true;
    fabric_.changed_.notify_all();
    fabric_.attention_.notify_all();
  }

 private:
  NcclFabric& fabric_;
  const Operation& operation_;
  Duration allowance_;
  Mark start_;
};

Task<> NcclFabric::launch(const Operation& operation, std::uint64_t number, const Stages& stages,
                          Duration allowance) {
  const Time begin = loop().now();
  const Time until =
      allowance >= kNever - begin ? kNever : begin + allowance;  // for all that is before it, too
  const auto check_time = [&](const std::string& why) {
    check_not_over(operation);
    if (loop().now() < until) return;
    throw IoError(fmt::format("{}: not launched in {:.1f} s: {}", describe(operation),
                              seconds(allowance), why));
  };
  while (launched_ != number) {
    check_time(fmt::format("its turn on rank {} is {}, and {} have come so far", rank(), number,
                           launched_));
    co_await changed_.wait(until);
  }
  check_not_over(operation);
  Launching launching(*this, operation, allowance);
  try {
    for (const Stage& stage : stages) {
      if (!stage.grouped) {
        stage.put(nullptr, nullptr);
        continue;
      }
      comm_->group(stage.put);
      const Time put = loop().now();
      for (nccl::Result state = comm_->state(); state != nccl::Result::success;
           state = comm_->state()) {
        if (over_.empty()) comm_->check(state, "launching");
        check_time("NCCL is still connecting to its peers");
        const Duration waited = loop().now() - put;
        if (waited < kShortly)
          co_await loop().yield();
        else
          co_await loop().sleep_for(std::clamp(waited / 8, kShortestSleep, kLongestSleep));
      }
    }
  } catch (const IoError&) {
    throw;
  } catch (const Error& error) {
    const std::string why = fmt::format("rank {}: {}", rank(), error.what());
    end_nccl(why, -1);
    throw IoError(fmt::format("{}: {}", describe(operation), why));
  }
  launching.end();
}

}  // namespace skein
