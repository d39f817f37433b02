// A sum over all workers that is on its way while they compute: planes of the model and, beside
// them, what everybody must know of the round.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "strategy/worker.h"

namespace skein {

// What each worker adds to a round.
struct RoundNotes {
  std::int64_t samples = 0;
  double figure = 0;          // whatever the strategy wants to know the sum of
  std::int64_t settling = 0;  // 1 from a worker in flush(): no step before this round has ended
  std::int64_t carries = 1;   // 0 from a worker that has nothing new for the others
  std::int64_t decision = 0;  // what Worker::prepare() decided last
  bool disagree = false;      // not all decided the same

  // How long rounds take, where the strategy wants to know.
  Duration slowest{};                 // the longest of all
  Duration waited{};                  // added up
  Duration travel = Duration::max();  // the shortest of all
};

// One at a time. All workers post the same rounds in the same order. The values of a round to which
// nobody has anything new to add are not sent at all; a worker that has nothing new waits to hear
// whether others have, and then adds what it has.
class Round {
 public:
  // `values` are summed in place.
  Round(Worker& worker, std::vector<Span> values, Channel values_channel, Channel notes_channel);

  // Sends this worker's values and notes on their way; `values` may stand in for those of the
  // constructor. Requires that nothing is posted; nobody touches the values until the round was
  // taken.
  void post(const RoundNotes& own) { post(own, values_); }
  void post(const RoundNotes& own, const std::vector<Span>& values);
  bool posted() const { return sending_.valid(); }

  // Whether a posted round has ended, well or not.
  bool arrived() const { return sending_->done(); }

  // How long the round that was taken last was on its way, for this worker.
  Duration travelled() const { return travelled_; }

  // Waits for the posted round and returns everybody's notes added up. Learns whether somebody
  // wants to stop. Throws IoError if the round failed.
  Task<RoundNotes> take();

 private:
  // What travels of the notes.
  struct Record {
    std::int64_t samples, settling, carries, stop, decision, disagree;
    std::uint64_t figure;  // the bits of a double
    std::int64_t slowest_ns, waited_ns, travel_ns;
  };
  static void merge(std::span<std::byte> into, std::span<const std::byte> from);

  RoundNotes read() const;
  Task<> send(bool carries, std::vector<Span> values);
  std::vector<Task<>> sums(const std::vector<Span>& values);

  Worker& worker_;
  std::vector<Span> values_;
  Channel values_channel_, notes_channel_;
  Record notes_{};
  Duration travelled_{};
  ScopedJob sending_;
};

}  // namespace skein
