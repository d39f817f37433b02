#include "runtime/calls.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "core/packed.h"
#include "core/print_ranks.h"
#include "fabric/rows.h"

namespace skein {
namespace {

// Bytes of a table in which workers tell each other something.
constexpr std::size_t kMostGathered = std::size_t{1} << 19;
constexpr std::size_t kLongestCall = 160;
constexpr std::size_t kMostKinds = 4;  // of things that others are doing, in an error
constexpr char kPart = '\x1f';         // between the user's call and what is a part of it

// What each worker says when it comes to a call: a digest of the call's words (FNV-1a), and what it
// brings.
struct Arrival {
  std::uint64_t digest;
  std::uint64_t size;
  std::byte brought[Workers::Calls::kMostBrought];
};

std::uint64_t digest_of(const std::string& call) {
  std::uint64_t digest = 14695981039346656037ULL;
  for (const char byte : call)
    digest = (digest ^ static_cast<unsigned char>(byte)) * 1099511628211ULL;
  return digest;
}

// What the fabric says, in the words of the call.
std::string in_words(std::string text, const std::string& call) {
  for (const char* name : {"combine", "broadcast", "all_reduce", "all_gather"}) {
    const std::string theirs = describe({name, 0, 0, kNever});
    if (const auto at = text.find(theirs); at != std::string::npos)
      return text.replace(at, theirs.size(), call);
  }
  return text;
}

// A task whose result nobody needs: who took part is asked for afterwards.
Task<> ended(Task<int> task) { co_await task; }

}  // namespace

Workers::Calls::Scope::Scope(Calls& calls, std::string call)
    : calls_(calls), before_(calls.scope_) {
  if (before_.empty() || call.empty()) calls_.scope_ = std::move(call);
}

Workers::Calls::Calls(Fabric& fabric, Courier& courier, Duration patience, std::vector<int> names,
                      std::string owner)
    : fabric_(fabric),
      courier_(courier),
      patience_(patience),
      names_(std::move(names)),
      roll_call_(fabric, kQuestions, kAnswers, patience),
      present_(names_.size(), true),
      owner_(std::move(owner)) {}

Workers::Calls::~Calls() = default;

void Workers::Calls::tolerate_losses() {
  if (fabric_.size() > 1)
    survivors_ = std::make_unique<Survivors>(fabric_, kUpChannel, kDownChannel, kRingChannel);
}

void Workers::Calls::wait_for_survivors(const std::string& call, Task<int> task) {
  courier_.wait(ended(std::move(task)));
  present_ = survivors_->contributors();
  for (const int rank : survivors_->take_late())
    fmt::print(stderr, "skein: {}\n",
               with_advice(fmt::format("rank {} has not come to {} within {:.3g} s: the run goes "
                                       "on without it",
                                       names_[static_cast<std::size_t>(rank)], named(call),
                                       seconds(patience_))));
  check_company();
}

// A worker that was away too long must not take itself for the last one: others may go on, or have
// ended well and gone.
void Workers::Calls::check_company() const {
  if (survivors_ && survivors_->left_behind())
    throw IoError(
        with_advice("the others have gone on without this worker, which was away too long or did "
                    "not come to a call of theirs"));
}

// The user's name of a call.
const std::string& Workers::Calls::named(const std::string& call) const {
  return scope_.empty() ? call : scope_;
}

// What workers compare.
std::string Workers::Calls::words_for(const std::string& call) const {
  return scope_.empty() ? call : scope_ + kPart + call;
}

std::string Workers::Calls::with_advice(std::string text) const {
  return advice_.empty() ? text : fmt::format("{}; {}", text, advice_);
}

Task<> Workers::Calls::inside(const std::string& call, Task<> task) {
  return roll_call_.attend_uncounted(std::move(task), named(call));
}

// Something else that fails meanwhile is no news.
std::vector<RollCall::Standing> Workers::Calls::ask(Duration patience) {
  std::vector<RollCall::Standing> standings;
  try {
    courier_.wait(roll_call_.ask(standings, patience));
  } catch (const IoError&) {
  }
  return standings;
}

IoError Workers::Calls::explain(const std::string& call, const TooLate& late) {
  auto standings = ask(roll_call_.patience_with_listeners());
  asked_ = true;
  std::erase_if(standings, [&](const auto& each) {
    return !each.answered || (each.inside && each.what == named(call));
  });
  std::string text = fmt::format("{}: {}", named(call), late.what());
  if (const std::string others = described(standings, named(call)); !others.empty())
    text = with_advice(fmt::format("{} ({})", text, others));
  return IoError(text, late.peer());
}

// "rank 1 is in run.step(), ranks 2-3 are in the program's own code after world.sum()"
std::string Workers::Calls::described(const std::vector<RollCall::Standing>& standings,
                                      const std::string& call) {
  std::vector<std::pair<std::string, std::vector<int>>> kinds;
  for (const RollCall::Standing& each : standings) {
    if (!each.answered) continue;
    const bool same = each.inside && each.what == call;
    const std::string what =
        each.inside         ? fmt::format("in {}{}", same ? "an earlier " : "", each.what)
        : each.what.empty() ? "in the program's own code"
                            : fmt::format("in the program's own code, after {}", each.what);
    const auto known = std::ranges::find(kinds, what, [](const auto& kind) { return kind.first; });
    const int rank = names_[static_cast<std::size_t>(each.rank)];
    if (known != kinds.end())
      known->second.push_back(rank);
    else
      kinds.emplace_back(what, std::vector<int>{rank});
  }
  std::vector<std::string> parts;
  for (const auto& [what, who] : kinds)
    if (parts.size() < kMostKinds)
      parts.push_back(
          fmt::format("{} {} {}", print_ranks(who), who.size() == 1 ? "is" : "are", what));
  return fmt::format("{}", fmt::join(parts, ", "));
}

void Workers::Calls::exchange(const std::string& call, Span record, const Merge& merge) {
  if (!survivors_) return wait(call, fabric_.combine(kOwnChannel, record, merge, limit()));
  wait_for_survivors(call, survivors_->combine(record, merge, deadline()));
}

void Workers::Calls::wait(const std::string& call, Task<> task) {
  wait_for(named(call), std::move(task));
}

void Workers::Calls::wait_for(const std::string& call, Task<> task) {
  if (!broken_.empty())
    throw IoError(fmt::format("{} cannot be: a call before it failed: {}", call, broken_),
                  broken_by_);
  try {
    courier_.wait(roll_call_.attend(std::move(task), call));
  } catch (const TooLate& late) {
    name_the_missing(call, late);
  } catch (const IoError& error) {
    give_up(call, in_words(error.what(), call), error.peer());
  }
}

void Workers::Calls::give_up(const std::string& call, const std::string& why, int peer) {
  broken_ = why.find(call) == std::string::npos ? call + ": " + why : why;
  broken_by_ = peer;
  throw IoError(broken_, broken_by_);
}

// The others wait for the same worker and hear of it from whoever knows first.
void Workers::Calls::name_the_missing(const std::string& call, const TooLate& late) {
  auto standings = ask(roll_call_.patience_with_late_ones());
  std::vector<int> missing, came{fabric_.rank()};
  for (const RollCall::Standing& each : standings) {
    if (each.came)
      came.push_back(each.rank);
    else if (!each.gone && (each.answered || !asked_))
      missing.push_back(each.rank);
  }
  if (missing.empty())
    for (const RollCall::Standing& each : standings)
      if (each.gone) missing.push_back(each.rank);
  if (missing.empty()) give_up(call, in_words(late.what(), call), late.peer());
  std::erase_if(standings, [](const auto& each) { return each.came; });
  std::ranges::sort(came);
  for (auto* ranks : {&missing, &came})
    for (int& rank : *ranks) rank = names_[static_cast<std::size_t>(rank)];
  const std::string others = described(standings, call);
  broken_ = with_advice(fmt::format("{} {} not come to {}, which {} made{}{}", print_ranks(missing),
                                    missing.size() == 1 ? "has" : "have", call, print_ranks(came),
                                    others.empty() ? "" : "; ", others));
  courier_.with_loop([this] { fabric_.fail(broken_); });
  give_up(call, broken_, missing.front());
}

std::vector<Workers::Calls::Row> Workers::Calls::meet(const std::string& call,
                                                      std::span<const std::byte> own) {
  SKEIN_CHECK(own.size() <= kMostBrought, "{} bytes brought to a call", own.size());
  Arrival mine{digest_of(words_for(call)), own.size(), {}};
  std::ranges::copy(own, mine.brought);
  Rows table(fabric_.size(), sizeof(Arrival));
  table.put(fabric_.rank(), message_in(mine).host_bytes());
  exchange(call, table.record(), table.merge());
  std::vector<Row> rows(ranks());
  bool same = true;
  for (std::size_t rank = 0; rank < rows.size(); ++rank) {
    const auto row = table.row(static_cast<int>(rank));
    if (!row) continue;
    const auto theirs = unpack<Arrival>(*row);
    same = same && theirs.digest == mine.digest;
    const std::size_t size = std::min<std::size_t>(theirs.size, kMostBrought);
    rows[rank].assign(theirs.brought, theirs.brought + size);
  }
  if (!same) tell_differences(call);
  return rows;
}

// All have seen that they differ, so all come here. Where all are in the same call of the user's
// they differ in its parts.
void Workers::Calls::tell_differences(const std::string& call) {
  Rows table(fabric_.size(), std::min(kLongestCall, kMostGathered / ranks()));
  std::string padded = words_for(call);
  padded.resize(table.row_bytes());
  table.put(fabric_.rank(), std::as_bytes(std::span(padded)));
  exchange(call, table.record(), table.merge());
  std::vector<std::string> words(ranks());
  bool same_call = true;
  for (std::size_t rank = 0; rank < ranks(); ++rank) {
    const auto row = table.row(static_cast<int>(rank));
    if (!row) continue;
    words[rank].assign(reinterpret_cast<const char*>(row->data()), row->size());
    words[rank].resize(std::min(words[rank].find('\0'), words[rank].size()));
    const std::string users = words[rank].substr(0, words[rank].find(kPart));
    same_call = same_call && users == named(call);
  }
  std::vector<std::pair<std::string, std::vector<int>>> calls;
  for (std::size_t rank = 0; rank < ranks(); ++rank) {
    if (words[rank].empty()) continue;
    const std::size_t part = words[rank].find(kPart);
    std::string theirs = words[rank].substr(0, part);
    if (same_call && part != std::string::npos)
      theirs += fmt::format(" ({})", words[rank].substr(part + 1));
    const auto known =
        std::ranges::find(calls, theirs, [](const auto& each) { return each.first; });
    if (known == calls.end())
      calls.push_back({theirs, {names_[rank]}});
    else
      known->second.push_back(names_[rank]);
  }
  std::vector<std::string> parts;
  parts.reserve(calls.size());
  for (const auto& [theirs, who] : calls)
    parts.push_back(fmt::format("{} called {}", print_ranks(who), theirs));
  throw ConfigError(with_advice(fmt::format(
      "the workers made different calls: {}; expected the same of all", fmt::join(parts, ", "))));
}

// What is small comes along with the meeting. Else piece by piece: a table of what many workers
// have to say would not be small.
std::vector<Workers::Calls::Row> Workers::Calls::gather(const std::string& call,
                                                        std::span<const std::byte> bytes) {
  if (bytes.size() <= kMostBrought) return meet(call, bytes);
  meet(call);
  const std::size_t most = std::max<std::size_t>(1, kMostGathered / ranks());
  std::vector<Row> rows(ranks());
  for (std::size_t at = 0; at < bytes.size(); at += most) {
    const auto piece = bytes.subspan(at, std::min(most, bytes.size() - at));
    Rows table(fabric_.size(), piece.size());
    table.put(fabric_.rank(), piece);
    exchange(call, table.record(), table.merge());
    for (std::size_t rank = 0; rank < rows.size(); ++rank)
      if (const auto row = table.row(static_cast<int>(rank)))
        rows[rank].insert(rows[rank].end(), row->begin(), row->end());
  }
  // One that was lost on the way has nothing whole.
  for (std::size_t rank = 0; rank < rows.size(); ++rank)
    if (!present_[rank]) rows[rank].clear();
  return rows;
}

std::vector<std::string> Workers::Calls::gather_text(const std::string& call,
                                                     const std::string& text) {
  const std::uint64_t own = text.size();
  std::vector<std::uint64_t> lengths;
  lengths.reserve(ranks());
  for (const Row& row : meet(call, std::as_bytes(std::span(&own, 1)))) {
    lengths.push_back(0);
    if (row.size() == sizeof(own)) std::memcpy(&lengths.back(), row.data(), sizeof(own));
  }
  std::string padded = text;
  padded.resize(*std::ranges::max_element(lengths));
  std::vector<std::string> texts;
  texts.reserve(ranks());
  for (const Row& row : gather(call, std::as_bytes(std::span(padded)))) {
    const std::size_t length = std::min<std::size_t>(row.size(), lengths[texts.size()]);
    texts.emplace_back(reinterpret_cast<const char*>(row.data()), length);
  }
  return texts;
}

Workers::Calls::Row Workers::Calls::combine(const std::string& call,
                                            std::span<const std::byte> bytes, const Merge& merge) {
  Row result(bytes.begin(), bytes.end());
  if (bytes.size() <= kMostBrought) {
    bool first = true;
    for (const Row& row : meet(call, bytes)) {
      if (row.size() != bytes.size() || row.empty()) continue;
      if (std::exchange(first, false))
        result = row;
      else
        merge(result, row);
    }
    return result;
  }
  meet(call);
  combine_in_place(call, result, merge);
  return result;
}

void Workers::Calls::combine_in_place(const std::string& call, std::span<std::byte> bytes,
                                      const Merge& merge) {
  for (std::size_t at = 0; at < bytes.size(); at += kMostGathered)
    exchange(call, message_of(bytes.subspan(at, std::min(kMostGathered, bytes.size() - at))),
             merge);
}

Workers::Calls::Row Workers::Calls::broadcast(const std::string& call,
                                              std::span<const std::byte> bytes, int root) {
  const bool mine = fabric_.rank() == root;
  const std::uint64_t own = bytes.size();
  const auto sizes = meet(call, std::as_bytes(std::span(&own, 1)));
  if (root < 0 || root >= fabric_.size())
    throw ConfigError(
        fmt::format("{}: expected a rank from 0 to {}", named(call), fabric_.size() - 1));
  const Row& size = sizes[static_cast<std::size_t>(root)];
  if (size.empty()) throw IoError(fmt::format("{}: that worker is gone", named(call)), root);
  std::uint64_t count = 0;
  std::memcpy(&count, size.data(), sizeof(count));
  Row result = mine ? Row(bytes.begin(), bytes.end()) : Row(count);
  if (!survivors_) {
    wait(call, fabric_.broadcast(kOwnChannel, message_of(result), root, limit()));
    return result;
  }
  for (std::size_t at = 0; at < count; at += kMostGathered) {
    const auto piece =
        std::span(result).subspan(at, std::min<std::size_t>(kMostGathered, count - at));
    Rows table(1, piece.size());
    if (mine) table.put(0, piece);
    exchange(call, table.record(), table.merge());
    const auto row = table.row(0);
    if (!row) throw IoError(fmt::format("{}: that worker is gone", named(call)), root);
    std::ranges::copy(*row, piece.begin());
  }
  return result;
}

}  // namespace skein
