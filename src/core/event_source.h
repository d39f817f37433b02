// Where a real loop's thread sleeps until something arrives from outside it.
#pragma once

#include <cstdint>

#include "core/clock.h"

namespace skein {

class EventSource {
 public:
  virtual ~EventSource() = default;

  // Takes in what has arrived and resumes who waits for it. Returns a ticket for wait().
  virtual std::uint32_t poll() = 0;

  // Sleeps in the kernel until `until`, or until something has arrived or wake() was called since
  // the poll that gave the ticket. May return early for no reason.
  virtual void wait(std::uint32_t ticket, Time until) = 0;

  // Ends a wait, present or next. Thread-safe.
  virtual void wake() = 0;

  // Waits end, from now on, when this descriptor becomes readable too. False: it cannot do that.
  virtual bool also(int /*descriptor*/) { return false; }
};

}  // namespace skein
