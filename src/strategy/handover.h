// Orders what a driver computes and what a strategy does, where both are put on queues of a device.
//
// A driver calls these around its calls of the strategy, on the strategy's loop. On the host they
// do nothing: there, what was computed is there.
#pragma once

#include "core/queue.h"

namespace skein {

class Handover {
 public:
  // `compute` is where the driver puts its work; null on the host.
  Handover(Loop& loop, Queue* compute) : loop_(loop), compute_(compute) {}

  // What the strategy does from now on comes after what has been computed: before
  // gradient_ready(), end_step(), flush() and settle().
  void to_strategy() const {
    if (compute_ && loop_.queue()) loop_.queue()->wait(compute_->record());
  }

  // What is computed from now on comes after what the strategy has done: after begin_step(),
  // flush() and settle(); and after end_step(), where need() cannot wait.
  void to_driver() const { to_driver(record(loop_.queue())); }

  // The same up to a mark: after need(), Strategy::there().
  void to_driver(const Mark& mark) const {
    if (compute_ && mark) compute_->wait(mark);
  }

 private:
  Loop& loop_;
  Queue* compute_;
};

}  // namespace skein
