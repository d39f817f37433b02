// A sum over all workers that is on its way while they compute: planes of the model and, beside
// them, what everybody must know of the round.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "strategy/worker.h"

namespace skein {

// What each worker adds to a round.
struct RoundNotes {
  std::int64_t samples = 0;  // all of a round together: below 2^48, and counted exactly
  double figure = 0;         // whatever the strategy wants to know the mean of; float32 on the wire
  int settling = 0;  // 1 from a worker in flush(): it makes no step before this round has ended
  int carries = 1;   // 0 from a worker that has nothing new for the others
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

  // Waits for the posted round and returns everybody's notes added up. Learns whether somebody
  // wants to stop. Throws IoError if the round failed.
  Task<RoundNotes> take();

 private:
  enum Column : std::size_t { kLow, kMiddle, kHigh, kFigure, kSettling, kCarries, kStop, kColumns };

  void write(const RoundNotes& own);
  RoundNotes read() const;
  Task<> send(bool carries, std::vector<Span> values);
  std::vector<Task<>> sums(const std::vector<Span>& values);

  Worker& worker_;
  std::vector<Span> values_;
  Channel values_channel_, notes_channel_;
  std::unique_ptr<Memory> notes_;
  ScopedJob sending_;
};

}  // namespace skein
