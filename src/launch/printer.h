// What a launcher prints: never waits for whoever reads its standard output and error.
#pragma once

#include <poll.h>

#include <array>
#include <vector>

#include "core/clock.h"
#include "launch/outbox.h"

namespace skein {

// Where both lead to the same pipe or terminal, one Outbox has the lines of both in their order.
// Their descriptors stay as they are, since other processes share them. Throws Error when they
// cannot be copied.
class Printer {
 public:
  explicit Printer(Time now);

  Outbox& output() { return outlets_[0].box; }
  Outbox& error() { return outlets_[one_ ? 0 : 1].box; }

  // Writes what is taken now. After flush(…, interrupted_at) what nobody takes for a second is
  // dropped, and so is all that follows; before, nothing is.
  void flush(Time now, Time interrupted_at = kNever);

  bool pending() const { return outlets_[0].box.size() + outlets_[1].box.size() > 0; }
  bool dropped() const { return outlets_[0].dropped || outlets_[1].dropped; }

  // What becomes ready when more can be written, and when flush() has to be called in any case.
  void watch(std::vector<pollfd>& watched) const;
  Time next_look(Time interrupted_at) const;

 private:
  struct Outlet {
    FileDescriptor to;
    Outbox box;
    Time stuck_since{};  // when something was last taken, or began to wait
    bool waits = false;
    bool dropped = false;
  };

  std::array<Outlet, 2> outlets_;
  bool one_ = false;
};

}  // namespace skein
