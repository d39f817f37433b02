// Hands out the numbers 0, 1, 2, … to the workers of a run, each to one of them, as they ask.
//
// Rank 0 keeps the count and answers in the background. Everybody asks ahead, and further ahead
// whenever that was not enough, so that take() soon never waits. Point-to-point messages, on a
// channel of its own. Lives on the fabric's loop: only what runs there, or nobody, may use it.
#pragma once

#include <cstdint>
#include <deque>
#include <vector>

#include "fabric/fabric.h"

namespace skein {

class BlockQueue {
 public:
  static constexpr std::int64_t kNone = -1;

  // Where a queue stands, as a checkpoint keeps it.
  struct State {
    std::int64_t next = 0;               // rank 0: the first number that nobody got yet
    std::vector<std::int64_t> returned;  // rank 0: numbers to hand out before that
    std::vector<std::int64_t> held;      // this worker got them and has not taken them
  };

  // All workers make one, with the same `count`: numbers below it are handed out.
  BlockQueue(Fabric& fabric, Channel channel, Duration patience, std::int64_t count,
             const State& state);
  BlockQueue(const BlockQueue&) = delete;
  BlockQueue& operator=(const BlockQueue&) = delete;

  // The next number for this worker; kNone when all are gone. IoError for a lost rank 0.
  Task<std::int64_t> take();

  // Waits for what this worker has asked for. When all workers have, and as long as nobody takes,
  // their states together are the queue's.
  Task<> settle();
  State state() const;

  // All workers call it: nobody asks any more. Without it, who leaves is lost to rank 0.
  Task<> close();

  // The same for this worker alone, and waits for nobody; rank 0 must go on to be there for the
  // others. What this worker holds is lost. It must not go before settle().
  void leave();

 private:
  struct Grant {
    std::int64_t first = 0, count = 0;
  };

  void ask();
  Task<> asking();
  Task<Grant> request(std::int64_t want);
  Grant grant(std::int64_t want);
  Task<> serve(int peer);
  Deadline deadline() const { return fabric_.loop().now() + patience_; }

  Fabric& fabric_;
  Channel channel_;
  Duration patience_;
  std::int64_t count_;

  // Rank 0's part.
  std::int64_t next_;
  std::deque<std::int64_t> returned_;
  Signal left_;
  std::vector<ScopedJob> serving_;  // one for each peer

  // Everybody's.
  std::deque<std::int64_t> held_;
  std::int64_t ahead_ = 1;  // how many to hold
  bool gone_ = false;       // there are no more
  ScopedJob asking_;
};

}  // namespace skein
