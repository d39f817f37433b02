#include "fabric/survivors.h"

#include <algorithm>
#include <bit>

#include "core/packed.h"
#include "kernels/kernels.h"
#include "skein/error.h"

namespace skein {
namespace {

constexpr std::size_t kBlock = std::size_t{1} << 18;

// Parts of a vector that are worth a message of their own, the longest ring of them, and what
// passes over a ring at a time, whose values are kept apart until it has.
constexpr std::size_t kLeastPart = std::size_t{1} << 14;
constexpr int kLongestRing = 256;
constexpr std::size_t kPieceOfARing = std::size_t{1} << 22;

// Flags of ranks follow what a notice begins with, as bits.
constexpr std::size_t kFlagsPerByte = 8;

std::int64_t pieces_of(std::size_t count, std::size_t piece) {
  return static_cast<std::int64_t>((count + piece - 1) / piece);
}

std::size_t flag_bytes(std::size_t ranks) { return (ranks + kFlagsPerByte - 1) / kFlagsPerByte; }

void put_flags(std::span<std::byte> into, const std::vector<bool>& flags) {
  std::ranges::fill(into, std::byte{});
  for (std::size_t i = 0; i < flags.size(); ++i)
    if (flags[i]) into[i / kFlagsPerByte] |= std::byte{1} << (i % kFlagsPerByte);
}

std::vector<bool> get_flags(std::span<const std::byte> from, std::size_t ranks) {
  std::vector<bool> flags(ranks);
  for (std::size_t i = 0; i < ranks; ++i)
    flags[i] = (from[i / kFlagsPerByte] >> (i % kFlagsPerByte) & std::byte{1}) != std::byte{};
  return flags;
}

}  // namespace

// On the way down: a word and the block that it concerns; who contributed and who lives follow.
struct Survivors::Notice {
  std::int64_t number;
  Word word;
  std::uint8_t unused[7];

  static Notice of(std::span<const std::byte> message) {
    return unpack<Notice>(message.first(sizeof(Notice)));
  }
};

Survivors::Survivors(Fabric& fabric, Channel up, Channel down, std::optional<Channel> ring)
    : fabric_(fabric), up_(up), down_(down), ring_(ring) {
  const auto ranks = static_cast<std::size_t>(fabric.size());
  living_.assign(ranks, true);
  agreed_ = living_;
  contributors_.assign(ranks, false);
  told_.assign(ranks, false);
}

std::size_t Survivors::notice_size() const {
  return sizeof(Notice) + 2 * flag_bytes(living_.size());
}

std::vector<int> Survivors::lost() const {
  std::vector<int> ranks;
  for (int rank = 0; rank < fabric_.size(); ++rank)
    if (!lives(rank)) ranks.push_back(rank);
  return ranks;
}

void Survivors::lose(int rank) {
  if (rank < 0 || rank == fabric_.rank() || !lives(rank)) return;
  living_[static_cast<std::size_t>(rank)] = false;
  if (!fabric_.expel(rank).value_or(true)) left_behind_ = true;
}

// Whether this rank is still in the run.
bool Survivors::heed_expulsions() {
  for (int rank = 0; rank < fabric_.size(); ++rank) {
    if (!fabric_.expelled(rank)) continue;
    if (rank == fabric_.rank())
      left_behind_ = true;
    else
      living_[static_cast<std::size_t>(rank)] = false;
  }
  if (left_behind_) end_alone();
  return !left_behind_;
}

int Survivors::lowest() const {
  return static_cast<int>(std::find(living_.begin(), living_.end(), true) - living_.begin());
}

// Who does not know yet that a lower rank is lost waits for that one first. A root that leads in
// its place may begin so much later than those who know it, and others come so much later to it:
// with W(d) the wait for a root before which d are in doubt, and L(d) that root's own,
// L(d) = 1 + Σ W(k < d) and W(d) = L(d) + 1 + Σ W(k < d), which gives 3^d and 2 · 3^d.
Duration Survivors::longest_wait(int root, Duration patience) const {
  constexpr int kMostDoubts = 3;
  int doubts = 0;
  for (std::size_t rank = 0; rank < static_cast<std::size_t>(root); ++rank)
    doubts += agreed_[rank] && !living_[rank] ? 1 : 0;
  Duration wait = root == fabric_.rank() ? patience : 2 * patience;
  for (int i = 0; i < std::min(doubts, kMostDoubts); ++i) wait *= 3;
  return wait;
}

// Alone, a rank has nobody left to hear from either.
void Survivors::end_alone() {
  std::fill(living_.begin(), living_.end(), false);
  std::fill(contributors_.begin(), contributors_.end(), false);
  const auto own = static_cast<std::size_t>(fabric_.rank());
  living_[own] = contributors_[own] = true;
  agreed_ = living_;
}

Task<int> Survivors::sum(Span values, Deadline deadline) { return reduce(values, deadline, false); }

Task<int> Survivors::mean(Span values, Deadline deadline, double* distance,
                          std::optional<bool> whole) {
  const Duration patience = deadline - fabric_.loop().now();
  std::size_t passed = 0;
  int count = fabric_.size();
  double far = 0;
  const auto size = static_cast<std::size_t>(fabric_.size());
  const bool worth_it =
      size > 1 && fabric_.size() <= kLongestRing && values.count / size >= kLeastPart;
  // Agreements and blocks of values have numbers of their own, as many as there may be: ranks that
  // differ in how far the ring came, since a root died between its answers, never take one for the
  // other.
  const std::int64_t agreements = worth_it ? 1 + pieces_of(values.count, kPieceOfARing) : 0;
  const std::int64_t values_from = number_ + agreements;
  const std::int64_t end =
      values_from + std::max<std::int64_t>(1, pieces_of(values.count, kBlock)) + (distance ? 1 : 0);
  if (ring_ && worth_it) {
    bool goes = whole.value_or(true);
    if (!goes) ring_.reset();
    double nothing = 0;
    if (!whole) goes = co_await agree_on_ring(true, patience, nothing);
    std::unique_ptr<Memory> memory;
    if (goes)
      memory = fabric_.allocate_like(values, std::min(kPieceOfARing, values.count), values.type);
    while (goes && passed < values.count) {
      const std::size_t piece = std::min(kPieceOfARing, values.count - passed);
      goes = co_await mean_over_ring(values.at({passed, piece}), memory->span().at({0, piece}),
                                     patience, distance ? &far : nullptr);
      if (goes) passed += piece;
    }
  }
  number_ = values_from;
  if (passed < values.count || values.count == 0) {
    double rest = 0;
    count = co_await reduce(values.at({passed, values.count - passed}),
                            fabric_.loop().now() + patience, true, distance ? &rest : nullptr);
    if (distance) co_await average_figure(rest, patience);
    far += rest;
  }
  number_ = end;
  if (distance) *distance = far;
  co_return count;
}

// Whether all ranks are there, know of nobody who is lost, and have nothing that went wrong. Then
// `figure` becomes the sum of theirs.
Task<bool> Survivors::agree_on_ring(bool went_well, Duration patience, double& figure) {
  struct Record {
    std::uint64_t trouble, figure;  // the bits of a double
  };
  Record record{went_well && lost().empty() ? 0U : 1U, std::bit_cast<std::uint64_t>(figure)};
  const Merge merge = [](std::span<std::byte> into, std::span<const std::byte> from) {
    const auto one = unpack<Record>(into), other = unpack<Record>(from);
    pack(into, Record{one.trouble | other.trouble,
                      std::bit_cast<std::uint64_t>(std::bit_cast<double>(one.figure) +
                                                   std::bit_cast<double>(other.figure))});
  };
  const int count = co_await combine(message_in(record), merge, fabric_.loop().now() + patience);
  if (record.trouble != 0 || count < fabric_.size()) ring_.reset();
  figure = std::bit_cast<double>(record.figure);
  co_return ring_.has_value();
}

// It may end well on some ranks and not on others when one dies, and some may see that by the
// deadline alone: so all say how it went, and wait for each other twice as long. `sum` is memory
// apart. Adds to `far`, unless null, the mean over the ranks of ‖values − mean‖².
Task<bool> Survivors::mean_over_ring(Span values, Span sum, Duration patience, double* far) {
  copy(sum, values);
  bool well = true;
  try {
    co_await fabric_.all_reduce(*ring_, sum, fabric_.loop().now() + patience);
  } catch (const IoError&) {
    well = false;
  }
  scale(sum, static_cast<float>(1 / static_cast<double>(fabric_.size())));
  double distance = 0;
  if (far) distance = co_await value_of(fabric_.loop(), squared_distance(values, sum));
  const bool whole = co_await agree_on_ring(well, 2 * patience, distance);
  if (!whole) co_return false;
  if (far) *far += distance / fabric_.size();
  copy(values, sum);
  co_return true;
}

// Added up in the order of ranks.
Task<> Survivors::average_figure(double& figure, Duration patience) {
  std::uint64_t bits = std::bit_cast<std::uint64_t>(figure);
  const Merge merge = [](std::span<std::byte> into, std::span<const std::byte> from) {
    pack(into, std::bit_cast<std::uint64_t>(std::bit_cast<double>(unpack<std::uint64_t>(into)) +
                                            std::bit_cast<double>(unpack<std::uint64_t>(from))));
  };
  const int count = co_await combine(message_in(bits), merge, fabric_.loop().now() + patience);
  figure = std::bit_cast<double>(bits) / count;
}

Task<int> Survivors::reduce(Span values, Deadline deadline, bool divide, double* far) {
  const Duration patience = deadline - fabric_.loop().now();
  const auto apart =
      far ? fabric_.allocate_like(values, std::min(kBlock, values.count), values.type) : nullptr;
  const Take take = [](Span block, Span theirs) { add(block, theirs); };
  std::ptrdiff_t count = 1;
  for (std::size_t offset = 0; offset == 0 || offset < values.count; offset += kBlock) {
    const Span block = values.at({offset, std::min(kBlock, values.count - offset)});
    if (far) copy(apart->span().at({0, block.count}), block);
    co_await reduce_block(block, patience, take);
    count = std::count(contributors_.begin(), contributors_.end(), true);
    if (divide && count > 1) scale(block, static_cast<float>(1 / static_cast<double>(count)));
    if (!far) continue;
    const Figure figure = squared_distance(apart->span().at({0, block.count}), block);
    const double moved = co_await value_of(fabric_.loop(), figure);
    *far += moved;
  }
  co_return static_cast<int>(count);
}

Task<int> Survivors::combine(Span record, const Merge& merge, Deadline deadline) {
  SKEIN_CHECK(record.bytes() <= kBlock * sizeof(float), "a record of {} bytes", record.bytes());
  const Take take = [&merge](Span block, Span theirs) {
    merge(block.host_bytes(), theirs.host_bytes());
  };
  co_await reduce_block(record, deadline - fabric_.loop().now(), take);
  co_return static_cast<int>(std::count(contributors_.begin(), contributors_.end(), true));
}

Task<> Survivors::reduce_block(Span block, Duration patience, const Take& take) {
  ++number_;
  for (;;) {
    if (!heed_expulsions()) co_return;
    const int root = lowest();
    if (root == fabric_.rank()) {
      co_await lead(block, patience, take);
      co_return;
    }
    const bool ended = co_await follow(root, block, patience);
    if (ended) co_return;
    lose(root);
  }
}

// Room for what a peer sends, of the kind of this rank's own block.
Span Survivors::inbox(Span block, std::size_t count) {
  if (block.device == Device::absent) return {nullptr, count, block.device, block.type};
  const std::size_t room = kBlock * sizeof(float) / size_of(block.type);
  if (!inbox_ || inbox_->span().type != block.type || inbox_->span().device != block.device)
    inbox_ = fabric_.allocate_like(block, room, block.type);
  return inbox_->span().at({0, count});
}

Task<> Survivors::lead(Span block, Duration patience, const Take& take) {
  const Deadline deadline = fabric_.loop().now() + longest_wait(fabric_.rank(), patience);
  std::fill(contributors_.begin(), contributors_.end(), false);
  contributors_[static_cast<std::size_t>(fabric_.rank())] = true;
  std::vector<int> silent;
  for (int peer = fabric_.rank() + 1; peer < fabric_.size(); ++peer) {
    if (!lives(peer)) continue;
    try {
      const bool here = co_await contributed(peer, block, deadline, patience);
      if (!here) continue;
      take(block, inbox(block, block.count));
      contributors_[static_cast<std::size_t>(peer)] = true;
    } catch (const IoError& error) {
      if (dynamic_cast<const TooLate*>(&error) != nullptr) late_.push_back(peer);
      silent.push_back(peer);
      lose(peer);
    }
  }
  co_await hear_from_the_lost(silent);
  if (heed_expulsions()) co_await answer(block, fabric_.loop().now() + patience);
}

// Where nobody decides who is lost, a peer that does not come may have gone on without this rank,
// and has then sent word. Those who are here wait, so only what has arrived counts.
Task<> Survivors::hear_from_the_lost(std::vector<int> peers) {
  for (const int peer : peers) {
    if (left_behind_ || fabric_.expelled(peer)) continue;
    std::vector<std::byte> notice(notice_size());
    try {
      co_await fabric_.receive(down_, peer, message_of(notice), fabric_.loop().now());
      left_behind_ = Notice::of(notice).word == Word::out;
    } catch (const IoError&) {  // nothing from there
    }
  }
}

// Receives the peer's part of this block. False: the peer is further than this block, since it had
// its sum from a rank that has died since. The deadline is for the peer to come: it may have passed
// while this rank waited for another, and who has come gets the time to go on.
Task<bool> Survivors::contributed(int peer, Span block, Deadline deadline, Duration patience) {
  for (;;) {
    auto announced = announced_.find(peer);
    if (announced == announced_.end()) {
      Header header{};
      co_await fabric_.receive(up_, peer, message_in(header), deadline);
      announced = announced_.emplace(peer, header).first;
    }
    const auto [number, bytes] = announced->second;
    if (number > number_) co_return false;
    const std::int64_t size = static_cast<std::int64_t>(size_of(block.type));
    if (bytes < 0 || bytes > static_cast<std::int64_t>(kBlock * sizeof(float)) || bytes % size != 0)
      throw IoError("a sum over survivors: a peer sends more than a block", peer);
    deadline = std::max(deadline, fabric_.loop().now() + patience);
    co_await fabric_.receive(up_, peer, inbox(block, static_cast<std::size_t>(bytes / size)),
                             deadline);
    announced_.erase(peer);
    if (number == number_) co_return true;
    // A block that this rank has behind it: the peer keeps what it has of it.
    const std::vector<std::byte> notice = make_notice(Word::missed, number);
    co_await fabric_.send(down_, peer, message_of(notice), deadline);
  }
}

std::vector<std::byte> Survivors::make_notice(Word word, std::int64_t number) const {
  std::vector<std::byte> notice(notice_size());
  const std::span all(notice);
  const std::size_t flags = flag_bytes(living_.size());
  pack(all.first(sizeof(Notice)), Notice{number, word, {}});
  put_flags(all.subspan(sizeof(Notice), flags), contributors_);
  put_flags(all.last(flags), living_);
  return notice;
}

// All answers leave at once; then each is waited for.
Task<> Survivors::answer(Span block, Deadline deadline) {
  if (fabric_.size() == 1) co_return;
  const std::vector<std::byte> notice = make_notice(Word::sum, number_);
  agreed_ = living_;
  const Operation operation{"send", down_, 0, deadline};
  std::vector<std::pair<int, std::unique_ptr<Fabric::Sending>>> open;
  std::vector<int> silent;
  for (int peer = fabric_.rank() + 1; peer < fabric_.size(); ++peer) {
    if (!contributors_[static_cast<std::size_t>(peer)]) continue;
    auto sending = std::make_unique<Fabric::Sending>(fabric_, operation, peer);
    try {
      co_await sending->start(message_of(notice));
      co_await sending->start(block);
      open.emplace_back(peer, std::move(sending));
    } catch (const IoError&) {
      silent.push_back(peer);
      lose(peer);
    }
  }
  for (const auto& [peer, sending] : open) {
    try {
      co_await sending->finish();
    } catch (const IoError&) {
      silent.push_back(peer);
      lose(peer);
    }
  }
  tell_the_lost();
  co_await hear_from_the_lost(silent);
  heed_expulsions();
}

// One that was taken for dead and comes back must not wait for an answer.
void Survivors::tell_the_lost() {
  for (int peer = 0; peer < fabric_.size(); ++peer) {
    const auto at = static_cast<std::size_t>(peer);
    if (living_[at] || told_[at]) continue;
    told_[at] = true;
    fabric_.send_and_forget(down_, peer, message_of(make_notice(Word::out, number_)));
  }
}

// Whether this block is over for this rank; else the root is lost.
Task<bool> Survivors::follow(int root, Span block, Duration patience) {
  const Deadline deadline = fabric_.loop().now() + longest_wait(root, patience);
  Header header{number_, static_cast<std::int64_t>(block.bytes())};
  std::vector<std::byte> notice(notice_size());
  // A root that has lost this rank takes nothing from it, but has left it a word.
  try {
    co_await fabric_.send(up_, root, message_in(header), deadline);
    co_await fabric_.send(up_, root, block, deadline);
  } catch (const IoError&) {
  }
  try {
    co_await fabric_.receive(down_, root, message_of(notice), deadline);
    const Word word = Notice::of(notice).word;
    if (word == Word::sum) {
      co_await fabric_.receive(down_, root, block, deadline);
      hear(notice);
    } else if (word == Word::out) {
      left_behind_ = true;
      end_alone();
    } else {
      std::fill(contributors_.begin(), contributors_.end(), false);
      contributors_[static_cast<std::size_t>(fabric_.rank())] = true;
    }
    co_return true;
  } catch (const IoError&) {
    co_return false;
  }
}

// Whom the root has lost, all have lost.
void Survivors::hear(std::span<const std::byte> notice) {
  const std::size_t flags = flag_bytes(living_.size());
  contributors_ = get_flags(notice.subspan(sizeof(Notice), flags), living_.size());
  const auto living = get_flags(notice.last(flags), living_.size());
  for (int rank = 0; rank < fabric_.size(); ++rank)
    if (!living[static_cast<std::size_t>(rank)]) lose(rank);
  agreed_ = living;
}

}  // namespace skein
