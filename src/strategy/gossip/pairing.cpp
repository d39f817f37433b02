#include "strategy/gossip/pairing.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "core/packed.h"
#include "skein/error.h"
#include "strategy/gossip/self_running.h"

namespace skein {
namespace {

using namespace std::chrono_literals;

// Answers come by themselves, from a loop that is not computing.
constexpr Duration kFirstAnswer = 1s, kLeastAnswer = 20ms, kLeastPause = 1ms;

}  // namespace

// With every word, what its sender knows of all.
struct Pairing::Message {
  std::int64_t number;  // of the proposal
  std::int64_t total;
  Kind kind;
  std::uint8_t takes_part, stop;
  std::uint8_t unused[5];
};

struct Pairing::Neighbour {
  struct Proposal {
    std::int64_t number;
    Time sent;
    bool late = false;
  };
  struct Letter {
    Kind kind;
    std::int64_t number;
  };

  Neighbour(Worker& worker, int its_rank) : rank(its_rank), queued(worker.loop()) {}

  int rank;
  bool lives = true;
  bool takes_part = true;            // as far as is known
  bool refused = false;              // since somebody was last found
  std::optional<Proposal> proposal;  // of ours, without an answer
  Message in{}, out{};
  std::vector<Letter> letters;  // to be sent; few
  Signal queued;
  ScopedJob listener, speaker;
};

Pairing::Pairing(Worker& worker, Channel channel, std::span<const int> neighbours, Tally& tally,
                 Signal& changed, Host& host)
    : worker_(worker),
      channel_(channel),
      tally_(tally),
      changed_(changed),
      host_(host),
      rng_(worker.rng(0x7061697273)),
      answers_(kFirstAnswer, kLeastAnswer, worker.patience()) {
  for (const int rank : neighbours)
    neighbours_.push_back(std::make_unique<Neighbour>(worker, rank));
}

Pairing::~Pairing() = default;

void Pairing::start() {
  for (const auto& each : neighbours_) start(*each);
}

void Pairing::start(Neighbour& neighbour) {
  const auto run = [&](Task<> job) {
    return ScopedJob(worker_.loop().spawn(run_by_itself(
        std::move(job), [this, &neighbour](const std::exception_ptr&) { lose(neighbour); },
        [this](std::exception_ptr error) { host_.broke(std::move(error)); })));
  };
  neighbour.listener = run(listen(neighbour));
  neighbour.speaker = run(speak(neighbour));
}

Pairing::Neighbour* Pairing::find(int rank) const {
  const auto found = std::find_if(neighbours_.begin(), neighbours_.end(),
                                  [rank](const auto& each) { return each->rank == rank; });
  return found == neighbours_.end() ? nullptr : found->get();
}

void Pairing::add(int rank) {
  if (find(rank)) return;
  neighbours_.push_back(std::make_unique<Neighbour>(worker_, rank));
  start(*neighbours_.back());
  say(*neighbours_.back(), Kind::news, 0);
}

// A neighbour may have nothing to say for as long as it likes: only its end ends the wait.
Task<> Pairing::listen(Neighbour& from) {
  for (;;) {
    co_await worker_.fabric().receive(channel_, from.rank, message_in(from.in), kNever);
    if (!from.lives) co_return;
    heard(from);
  }
}

// One message at a time, each with what is known when it leaves.
Task<> Pairing::speak(Neighbour& to) {
  for (;;) {
    while (to.letters.empty()) co_await to.queued.wait();
    const auto letter = to.letters.front();
    to.letters.erase(to.letters.begin());
    to.out = {letter.number, tally_.total, letter.kind, takes_part_, tally_.stop, {}};
    co_await worker_.fabric().send(channel_, to.rank, message_in(to.out), kNever);
  }
}

void Pairing::say(Neighbour& to, Kind kind, std::int64_t number) {
  if (!to.lives) return;
  to.letters.push_back({kind, number});
  to.queued.notify_all();
}

void Pairing::announce(bool takes_part) {
  takes_part_ = takes_part;
  for (const auto& each : neighbours_) {
    const auto news = [](const Neighbour::Letter& letter) { return letter.kind == Kind::news; };
    if (std::none_of(each->letters.begin(), each->letters.end(), news)) say(*each, Kind::news, 0);
  }
}

void Pairing::heard(Neighbour& from) {
  const Message& message = from.in;
  tally_.hear(message.total, message.stop != 0);
  from.takes_part = message.takes_part != 0;
  if (message.kind == Kind::propose)
    proposed(from, message.number);
  else if (message.kind != Kind::news)
    answered(from, message.kind, message.number);
  changed_.notify_all();
}

// Messages keep their order, so one that was sent after ours had arrived would have answered it: a
// proposal that finds ours without an answer has crossed it, and the other side sees the same.
void Pairing::proposed(Neighbour& from, std::int64_t number) {
  if (from.proposal) {
    resolve(from);
    host_.agreed(from.rank, worker_.rank() < from.rank);
  } else if (host_.is_free_for(from.rank)) {
    say(from, Kind::accept, number);
    host_.agreed(from.rank, false);
  } else {
    say(from, Kind::refuse, number);
  }
}

void Pairing::answered(Neighbour& from, Kind kind, std::int64_t number) {
  if (!from.proposal || from.proposal->number != number)
    throw IoError(fmt::format("rank {} answers a proposal that was not made", from.rank),
                  from.rank);
  resolve(from);
  if (kind == Kind::accept) {
    host_.agreed(from.rank, true);
  } else {
    ++counts_.refused;
    from.refused = true;
  }
}

void Pairing::resolve(Neighbour& from) {
  answers_.saw(worker_.loop().now() - from.proposal->sent);
  from.proposal.reset();
  if (asked_ == &from) asked_ = nullptr;
}

Pairing::Neighbour* Pairing::pick() {
  std::vector<Neighbour*> candidates;
  for (const auto& each : neighbours_)
    if (each->lives && each->takes_part && !each->refused && !each->proposal &&
        host_.is_free_for(each->rank))
      candidates.push_back(each.get());
  return candidates.empty() ? nullptr : candidates[rng_.below(candidates.size())];
}

Task<bool> Pairing::propose() {
  Neighbour* const to = pick();
  if (!to) {
    for (const auto& each : neighbours_) each->refused = false;
    co_return false;
  }
  const Time now = worker_.loop().now();
  to->proposal = Neighbour::Proposal{++number_, now};
  asked_ = to;
  say(*to, Kind::propose, number_);
  const Deadline deadline = now + answers_.limit();
  while (asked_ == to) {
    const bool news = co_await changed_.wait(deadline);
    if (news || asked_ != to) continue;
    to->proposal->late = true;
    ++counts_.unanswered;
    asked_ = nullptr;
    changed_.notify_all();
  }
  if (!to->refused)
    for (const auto& each : neighbours_) each->refused = false;
  co_return true;
}

// Those who refused are in an exchange that takes a while; workers must not come back in step.
Duration Pairing::pause(Duration exchange) {
  const Duration mean = std::max({kLeastPause, answers_.mean(), exchange / 4});
  return from_seconds(seconds(mean) * rng_.uniform(0.5, 1.5));
}

bool Pairing::awaits_answers() const {
  return std::any_of(neighbours_.begin(), neighbours_.end(),
                     [](const auto& each) { return each->lives && each->proposal; });
}

bool Pairing::has_company() const {
  return std::any_of(neighbours_.begin(), neighbours_.end(), [this](const auto& each) {
    return each->lives && each->takes_part && !(each->proposal && each->proposal->late) &&
           !host_.is_stuck_with(each->rank);
  });
}

void Pairing::lose(int peer) {
  if (Neighbour* const neighbour = find(peer)) lose(*neighbour);
}

void Pairing::lose(Neighbour& neighbour) {
  if (!neighbour.lives) return;
  neighbour.lives = false;
  neighbour.proposal.reset();
  if (asked_ == &neighbour) asked_ = nullptr;
  host_.lost(neighbour.rank);
  changed_.notify_all();
}

}  // namespace skein
