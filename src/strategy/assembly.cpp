#include "strategy/assembly.h"

#include <algorithm>

#include "core/exact_count.h"
#include "skein/error.h"

namespace skein {
namespace {

// A message: whether it asks for an answer, how often its sender has come, and how often all have.
enum Column : std::size_t {
  kAsks,
  kHere,
  kHereNews = kHere + kCountParts,
  kTogether,
  kTogetherNews = kTogether + kCountParts,
  kColumns
};

// Of the patience with silence: how often a sign of life is asked for.
constexpr int kSigns = 4;

// Who finds so many keepers silent, one after the other, is the one that is cut off.
constexpr int kMostSilentKeepers = 2;

}  // namespace

struct Assembly::Line {
  Line(Worker& worker, int its_rank)
      : rank(its_rank),
        in(allocate_on_heap(kColumns)),
        out(worker.fabric().allocate(kColumns)),
        queued(worker.loop()),
        last(worker.loop().now()) {}

  int rank;
  std::unique_ptr<Memory> in, out;
  bool to_say = false, asks = false;
  bool speaking = false;  // a message is on its way
  Signal queued;
  Roll here;  // how often that worker has come
  Time last;  // when it last gave a sign of life
  ScopedJob listener, speaker;
};

Assembly::Assembly(Worker& worker, Channel channel, const Survivors& survivors, Host& host)
    : worker_(worker),
      channel_(channel),
      survivors_(survivors),
      host_(host),
      changed_(worker.loop()),
      lines_(static_cast<std::size_t>(worker.size())) {}

Assembly::~Assembly() = default;

int Assembly::keeper() const {
  int rank = 0;
  while (rank < worker_.rank() && !survivors_.lives(rank)) ++rank;
  return rank;
}

void Assembly::start() {
  if (std::exchange(started_, true)) return;
  open_lines();
}

// The keeper has a line to everyone, the others one to the keeper.
void Assembly::open_lines() {
  if (!keeps()) return open(keeper());
  for (int rank = worker_.rank() + 1; rank < worker_.size(); ++rank)
    if (survivors_.lives(rank)) open(rank);
}

void Assembly::open(int rank) {
  auto& line = lines_[static_cast<std::size_t>(rank)];
  if (line) return;
  line = std::make_unique<Line>(worker_, rank);
  line->listener = ScopedJob(worker_.loop().spawn(listen(*line)));
  line->speaker = ScopedJob(worker_.loop().spawn(speak(*line)));
  if (here_.number > 0) say(*line, false);
}

// Only the other's end ends the wait: it may have nothing to say for as long as it likes.
Task<> Assembly::listen(Line& line) {
  try {
    for (;;) {
      co_await worker_.fabric().receive(channel_, line.rank, line.in->span(), kNever);
      heard(line);
    }
  } catch (const IoError&) {
    lose(line.rank);
  } catch (const Cancelled&) {
    throw;
  } catch (...) {
    host_.broke(std::current_exception());
  }
}

Task<> Assembly::speak(Line& line) {
  try {
    for (;;) {
      while (!line.to_say) co_await line.queued.wait();
      line.to_say = false;
      line.speaking = true;
      const Span row = line.out->span();
      row[kAsks] = std::exchange(line.asks, false) ? 1 : 0;
      put_count(row.at({kHere, kCountParts}), here_.number);
      row[kHereNews] = here_.news ? 1 : 0;
      put_count(row.at({kTogether, kCountParts}), together_.number);
      row[kTogetherNews] = together_.news ? 1 : 0;
      co_await worker_.fabric().send(channel_, line.rank, row, kNever);
      line.speaking = false;
      changed_.notify_all();
    }
  } catch (const IoError&) {
    lose(line.rank);
  } catch (const Cancelled&) {
    throw;
  } catch (...) {
    host_.broke(std::current_exception());
  }
}

void Assembly::say(Line& line, bool asks) {
  line.to_say = true;
  line.asks = line.asks || asks;
  line.queued.notify_all();
}

void Assembly::heard(Line& line) {
  const Span row = line.in->span();
  line.last = worker_.loop().now();
  line.here = {get_count(row.at({kHere, kCountParts})), row[kHereNews] > 0};
  const Roll together{get_count(row.at({kTogether, kCountParts})), row[kTogetherNews] > 0};
  if (together.number > together_.number) together_ = together;
  // One that waits for what this worker knows to be over heard from a keeper that is gone.
  const bool late = keeps() && line.here.number == together_.number &&
                    together.number < together_.number && line.here.number > 0;
  if (row[kAsks] > 0 || late) say(line, false);
  changed_.notify_all();
}

void Assembly::lose(int rank) {
  if (survivors_.lives(rank)) host_.absent(rank);
  if (started_) open_lines();
  changed_.notify_all();
}

bool Assembly::all_here() const {
  return std::all_of(lines_.begin(), lines_.end(), [this](const auto& line) {
    return !line || !survivors_.lives(line->rank) || line->here.number >= here_.number;
  });
}

void Assembly::lose_the_silent(Time since) {
  for (const auto& line : lines_)
    if (line && survivors_.lives(line->rank) && line->here.number < here_.number &&
        worker_.loop().now() - std::max(since, line->last) >= worker_.patience())
      lose(line->rank);
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
    for (const auto& line : lines_)
      if (line && survivors_.lives(line->rank)) say(*line, true);
  }
  together_ = here_;
  for (const auto& line : lines_)
    if (line && survivors_.lives(line->rank)) together_.news = together_.news || line->here.news;
  for (const auto& line : lines_)
    if (line && survivors_.lives(line->rank)) say(*line, false);
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
  const auto speaks = [this](const auto& line) {
    return line && survivors_.lives(line->rank) && (line->to_say || line->speaking);
  };
  while (std::any_of(lines_.begin(), lines_.end(), speaks) && worker_.loop().now() < latest)
    co_await changed_.wait(latest);
}

Task<bool> Assembly::come(bool news) {
  start();
  here_ = {here_.number + 1, news};
  silent_keepers_ = 0;
  while (together_.number < here_.number) {
    open_lines();
    if (keeps())
      co_await keep();
    else
      co_await wait_for(*lines_[static_cast<std::size_t>(keeper())]);
    if (silent_keepers_ == kMostSilentKeepers) co_return true;
  }
  co_await finish_speaking();
  co_return together_.news;
}

}  // namespace skein
