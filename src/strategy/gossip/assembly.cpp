#include "strategy/gossip/assembly.h"

#include <algorithm>
#include <bit>

#include "core/packed.h"
#include "strategy/gossip/self_running.h"

namespace skein {
namespace {

// Of the patience with silence: how often a sign of life is asked for, and how long a keeper may
// take to answer before the count goes on without it.
constexpr int kSigns = 4;

// Who finds so many keepers silent, one after the other, is the one that is cut off.
constexpr int kMostSilentKeepers = 2;

// A worker's count is told when it has grown by this part: so a long run takes few messages, and
// what is not told is little. Of many workers each tells it every few steps at most.
constexpr std::int64_t kGrowth = 64, kMostSteps = 4, kWorkersPerStep = 256;

}  // namespace

struct Assembly::Message {
  std::int64_t here, together;    // how often its sender has come, and how often all have
  std::int64_t together_samples;  // that all had computed when they last came
  std::int64_t counted;           // of the sender's samples, those that its receiver is to add
  std::int64_t total;             // of all
  std::uint64_t here_figure, together_figure;  // the bits of a double
  std::uint8_t asks, stop;                     // for an answer; the run is to end
  std::uint8_t here_news, together_news;
  std::uint8_t here_whole, together_whole;
  std::uint8_t unused[2];
};

struct Assembly::Line {
  Line(Worker& worker, int its_rank)
      : rank(its_rank), queued(worker.loop()), last(worker.loop().now()) {}

  int rank;
  Message in{}, out{};
  bool to_say = false, asks = false;
  bool speaking = false;  // a message is on its way
  Signal queued;
  Roll here;  // how often that worker has come
  Time last;  // when it last gave a sign of life
  ScopedJob listener, speaker;

  std::int64_t counted = 0;   // samples of that worker that are added here
  std::int64_t before = 0;    // samples of this worker that others were told of before that one
  std::optional<Time> asked;  // since when it owes an answer to a count
  bool silent = false;        // it did not give it in time
};

Assembly::Assembly(Worker& worker, Channel channel, const Survivors& survivors, Tally& tally,
                   Host& host)
    : worker_(worker),
      channel_(channel),
      survivors_(survivors),
      tally_(tally),
      host_(host),
      changed_(worker.loop()) {
  if (worker.rank() == counter_) base_ = 0;
}

Assembly::~Assembly() = default;

int Assembly::keeper() const {
  int rank = 0;
  while (rank < worker_.rank() && !survivors_.lives(rank)) ++rank;
  return rank;
}

// The lowest rank that lives and answers.
int Assembly::counter() const {
  const auto silent = [this](int rank) {
    const auto line = lines_.find(rank);
    return line != lines_.end() && line->second->silent;
  };
  int rank = 0;
  while (rank < worker_.rank() && (!survivors_.lives(rank) || silent(rank))) ++rank;
  return rank;
}

void Assembly::start() {
  if (std::exchange(started_, true)) return;
  open_lines();
}

// The keeper has a line to everyone, the others one to the keeper.
void Assembly::open_lines() {
  if (keeps())
    open_all();
  else
    open(keeper());
}

void Assembly::open_all() {
  for (int rank = worker_.rank() + 1; rank < worker_.size(); ++rank)
    if (survivors_.lives(rank)) open(rank);
}

Assembly::Line& Assembly::open(int rank) {
  auto& line = lines_[rank];
  if (line) return *line;
  line = std::make_unique<Line>(worker_, rank);
  const auto run = [&](Task<> job) {
    return ScopedJob(worker_.loop().spawn(run_by_itself(
        std::move(job), [this, rank](const std::exception_ptr&) { lose(rank); },
        [this](std::exception_ptr error) { host_.broke(std::move(error)); })));
  };
  line->listener = run(listen(*line));
  line->speaker = run(speak(*line));
  if (here_.number > 0) say(*line, false);
  return *line;
}

// Only the other's end ends the wait: it may have nothing to say for as long as it likes.
Task<> Assembly::listen(Line& line) {
  for (;;) {
    co_await worker_.fabric().receive(channel_, line.rank, message_in(line.in), kNever);
    heard(line);
  }
}

// Each message has what is known when it leaves.
Task<> Assembly::speak(Line& line) {
  for (;;) {
    while (!line.to_say) co_await line.queued.wait();
    line.to_say = false;
    line.speaking = true;
    line.out = message_to(line);
    line.asks = false;
    if (line.rank < worker_.rank()) {
      told_ = tally_.own;
      told_stop_ = tally_.stop;
    }
    co_await worker_.fabric().send(channel_, line.rank, message_in(line.out), kNever);
    line.speaking = false;
    changed_.notify_all();
  }
}

Assembly::Message Assembly::message_to(const Line& line) const {
  return {.here = here_.number,
          .together = together_.number,
          .together_samples = together_.gathering.samples,
          .counted = line.rank < worker_.rank() ? tally_.own - line.before : 0,
          .total = tally_.total,
          .here_figure = std::bit_cast<std::uint64_t>(here_.gathering.figure),
          .together_figure = std::bit_cast<std::uint64_t>(together_.gathering.figure),
          .asks = line.asks,
          .stop = tally_.stop,
          .here_news = here_.gathering.news,
          .together_news = together_.gathering.news,
          .here_whole = here_.gathering.whole,
          .together_whole = together_.gathering.whole,
          .unused = {}};
}

void Assembly::say(Line& line, bool asks) {
  line.to_say = true;
  line.asks = line.asks || asks;
  line.queued.notify_all();
}

void Assembly::say_to_all(bool asks) {
  for (const auto& [rank, line] : lines_)
    if (survivors_.lives(rank)) say(*line, asks);
}

void Assembly::heard(Line& line) {
  const Message& message = line.in;
  line.last = worker_.loop().now();
  line.asked.reset();
  line.silent = false;
  line.here = {message.here,
               {message.here_news != 0, message.here_whole != 0, 0,
                std::bit_cast<double>(message.here_figure)}};
  if (message.together > together_.number)
    together_ = {message.together,
                 {message.together_news != 0, message.together_whole != 0, message.together_samples,
                  std::bit_cast<double>(message.together_figure)}};
  tally_.hear(message.total, message.stop != 0);
  if (message.counted > line.counted)
    counted_ += message.counted - std::exchange(line.counted, message.counted);
  if (counter() == worker_.rank()) add_up();
  // One that waits for what this worker knows to be over heard from a keeper that is gone.
  const bool late = keeps() && line.here.number == together_.number &&
                    message.together < together_.number && line.here.number > 0;
  if (message.asks != 0 || late) say(line, false);
  changed_.notify_all();
}

void Assembly::count(bool all) {
  if (!started_) return;
  turn_to(counter());
  if (counter_ == worker_.rank())
    add_up();
  else
    tell(all);
}

// Who was told so far may have passed it on: one that comes after it adds what is new since.
void Assembly::turn_to(int counter) {
  if (counter == worker_.rank()) {
    if (!base_) {
      base_ = tally_.total;
      base_own_ = told_;
    }
    if (counter != counter_) open_all();
  } else if (Line& line = open(counter); counter > counter_) {
    line.before = told_;
  }
  counter_ = counter;
}

// When the run is over all hear of it at once.
void Assembly::add_up() {
  if (!base_) return;  // it is not known here yet that this worker counts
  tally_.hear(*base_ + counted_ + tally_.own - base_own_, false);
  if (tally_.over() && !std::exchange(told_all_, true)) say_to_all(false);
}

std::int64_t Assembly::worth_a_message() const {
  const std::int64_t steps = std::min<std::int64_t>(kMostSteps, worker_.size() / kWorkersPerStep);
  std::int64_t least = std::max(tally_.own / kGrowth, steps * tally_.step);
  // Towards the end all that is not told is less than half of what is left.
  if (tally_.goal > 0) least = std::min(least, (tally_.goal - tally_.total) / 2 / worker_.size());
  return std::max<std::int64_t>(1, least);
}

void Assembly::tell(bool all) {
  Line& line = *lines_.at(counter_);
  if (line.asked) {
    if (worker_.loop().now() - *line.asked < worker_.patience() / kSigns) return;
    line.silent = true;
    return count(all);
  }
  const bool stop = tally_.stop && !told_stop_;
  if (!stop && tally_.own - told_ < (all ? 1 : worth_a_message())) return;
  line.asked = worker_.loop().now();
  say(line, true);
}

void Assembly::lose(int rank) {
  if (survivors_.lives(rank)) host_.absent(rank);
  if (started_) open_lines();
  changed_.notify_all();
}

bool Assembly::all_here() const {
  return std::all_of(lines_.begin(), lines_.end(), [this](const auto& each) {
    return !survivors_.lives(each.first) || each.second->here.number >= here_.number;
  });
}

void Assembly::lose_the_silent(Time since) {
  std::vector<int> silent;  // lines are opened when one is lost
  for (const auto& [rank, line] : lines_)
    if (survivors_.lives(rank) && line->here.number < here_.number &&
        worker_.loop().now() - std::max(since, line->last) >= worker_.patience())
      silent.push_back(rank);
  for (const int rank : silent) lose(rank);
}

// This worker keeps the roll until all have come.
Task<> Assembly::keep() {
  const Time since = worker_.loop().now();
  Time next = since + worker_.patience() / kSigns;
  while (!all_here()) {
    co_await changed_.wait(next);
    if (worker_.loop().now() < next) continue;
    next = worker_.loop().now() + worker_.patience() / kSigns;
    lose_the_silent(since);
    say_to_all(true);
  }
  count(true);
  together_ = here_;
  together_.gathering.samples = tally_.known();
  together_.gathering.whole = survivors_.lost().empty();
  int came = 1;
  for (const auto& [rank, line] : lines_) {
    if (!survivors_.lives(rank) || line->here.number != here_.number) continue;
    ++came;
    together_.gathering.news |= line->here.gathering.news;
    together_.gathering.whole &= line->here.gathering.whole;
    together_.gathering.figure += line->here.gathering.figure;
  }
  together_.gathering.figure /= came;
  say_to_all(false);
}

// This worker is on the roll of another: until that one says that all have come, or is lost.
Task<> Assembly::wait_for(Line& keeper) {
  const Time since = worker_.loop().now();
  Time next = since + worker_.patience() / kSigns;
  say(keeper, false);
  while (together_.number < here_.number && survivors_.lives(keeper.rank)) {
    co_await changed_.wait(next);
    if (worker_.loop().now() < next) continue;
    next = worker_.loop().now() + worker_.patience() / kSigns;
    if (worker_.loop().now() - std::max(since, keeper.last) >= worker_.patience()) {
      lose(keeper.rank);
      ++silent_keepers_;
    }
    say(keeper, true);
  }
}

// Who goes with a word unsaid would be taken for lost by those who wait for it.
Task<> Assembly::finish_speaking() {
  const Time latest = worker_.loop().now() + worker_.patience();
  const auto speaks = [this](const auto& each) {
    return survivors_.lives(each.first) && (each.second->to_say || each.second->speaking);
  };
  while (std::any_of(lines_.begin(), lines_.end(), speaks) && worker_.loop().now() < latest)
    co_await changed_.wait(latest);
}

Task<Assembly::Gathering> Assembly::come(bool news, double figure) {
  start();
  here_ = {here_.number + 1, {news, survivors_.lost().empty(), 0, figure}};
  silent_keepers_ = 0;
  told_all_ = false;
  while (together_.number < here_.number) {
    open_lines();
    turn_to(counter());
    if (keeps())
      co_await keep();
    else
      co_await wait_for(*lines_.at(keeper()));
    if (silent_keepers_ == kMostSilentKeepers)
      co_return Gathering{true, false, tally_.known(), figure};
  }
  co_await finish_speaking();
  co_return together_.gathering;
}

}  // namespace skein
