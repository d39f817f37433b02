// Sums over those workers that still live, where a collective would fail with the first that died.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "fabric/fabric.h"

namespace skein {

// A star through the lowest living rank, block by block: everyone sends its block there, it adds
// them in order of rank and sends the sum back, and with it who lives. Who fails on the way is left
// out from then on. If the lowest rank fails, all who notice go on with the next lowest; one that
// nobody answers ends alone. So everyone ends, well, in finite time; where nobody fails during a
// call all end with the same bits.
//
// Who is lost is decided once for all where the fabric can do that (Fabric::expel): then there are
// never two groups that each go on without the other. Elsewhere a rank that was away too long is
// told, and may take one more call for whole before it hears of it.
//
// All make the same calls in the same order, with equal sizes, one at a time. A rank that was lost
// stays lost. Not thread-safe.
class Survivors {
 public:
  // The channels are used by nothing else. Without `ring` every mean goes through the star.
  Survivors(Fabric& fabric, Channel up, Channel down, std::optional<Channel> ring = std::nullopt);

  bool lives(int rank) const { return living_[static_cast<std::size_t>(rank)]; }
  std::vector<int> lost() const;

  // That rank is dead: nobody waits for it. No effect on the own one.
  void lose(int rank);

  // Adds up `values` over the living, in place; returns how many contributed. The lowest rank waits
  // for each of the others until `deadline`, they twice as long for it, block by block; three
  // times that for each lower rank that some may not know to be lost. A rank that fails between two
  // blocks (of 256 Ki elements) has contributed to the first alone.
  Task<int> sum(Span values, Deadline deadline);

  // The same, divided by how many contributed, for each block. As long as nobody is lost and parts
  // of the vector are worth a message, pieces of it pass over a ring of all (all_reduce), so that
  // nobody moves more than two vectors. A piece that does not pass well on all of them takes the
  // star, with everybody's values as they were, and so does all that follows. Where `distance` is
  // not null, on all ranks, it becomes the mean over those who contributed of ‖own values − mean‖².
  // `whole` is what all ranks have agreed on already: whether nobody is lost. Without it they ask
  // each other.
  Task<int> mean(Span values, Deadline deadline, double* distance = nullptr,
                 std::optional<bool> whole = std::nullopt);

  // Fabric::combine over the living. A record is at most 1 MiB.
  Task<int> combine(Span record, const Merge& merge, Deadline deadline);

  // The ranks that this one has lost, as the lowest, because they did not come in time; each is
  // named once.
  std::vector<int> take_late() { return std::exchange(late_, {}); }

  // Whether the others have gone on without this worker, which had not come in time: it is alone
  // since, and what it computes is no concern of theirs.
  bool left_behind() const { return left_behind_ || fabric_.expelled(fabric_.rank()); }

  // Who contributed to the last block, by rank.
  const std::vector<bool>& contributors() const { return contributors_; }

 private:
  enum class Word : std::uint8_t { sum = 1, missed, out };

  // What announces a block on the way up.
  struct Header {
    std::int64_t number, bytes;
  };
  struct Notice;

  // Takes a peer's block into the own one.
  using Take = std::function<void(Span block, Span theirs)>;

  Task<int> reduce(Span values, Deadline deadline, bool divide, double* far = nullptr);
  Task<bool> agree_on_ring(bool went_well, Duration patience, double& figure);
  Task<bool> mean_over_ring(Span values, Span sum, Duration patience, double* far);
  Task<> average_figure(double& figure, Duration patience);
  Task<> reduce_block(Span block, Duration patience, const Take& take);
  Task<> lead(Span block, Duration patience, const Take& take);
  Task<bool> contributed(int peer, Span block, Deadline deadline, Duration patience);
  Task<> hear_from_the_lost(std::vector<int> peers);
  bool heed_expulsions();
  Task<> answer(Span block, Deadline deadline);
  void tell_the_lost();
  Task<bool> follow(int root, Span block, Duration patience);
  void hear(std::span<const std::byte> notice);
  std::size_t notice_size() const;
  std::vector<std::byte> make_notice(Word word, std::int64_t number) const;
  void end_alone();
  int lowest() const;
  Duration longest_wait(int root, Duration patience) const;
  Span inbox(Span block, std::size_t count);

  Fabric& fabric_;
  Channel up_, down_;
  std::optional<Channel> ring_;  // none as soon as it cannot be whole
  std::vector<bool> living_, contributors_, told_;
  std::vector<bool> agreed_;         // who lived, as all have heard
  std::map<int, Header> announced_;  // blocks that ranks have announced and not sent
  std::vector<int> late_;
  bool left_behind_ = false;
  std::int64_t number_ = 0;  // of the present block; the same on all ranks
  std::unique_ptr<Memory> inbox_;
};

}  // namespace skein
