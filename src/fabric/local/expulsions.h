// Who has been expelled from a run, in one order that all its workers see.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "fabric/fabric.h"

namespace skein::shm {

// A list in shared memory that only grows. Who adds to it has read all of it before, so an entry is
// never by one whom an earlier entry expels: of two workers that take each other for lost, the
// first to say so is right, and both see that. All zeros: empty. Nothing here waits, so that a
// worker which dies or is stopped at any point holds up nobody.
class Expulsions {
 public:
  // False: `by` has itself been expelled before. True: `whom` is expelled, now or before.
  bool add(int by, int whom) {
    for (std::atomic<std::uint32_t>& entry : entries_) {
      std::uint32_t found = 0;
      if (entry.compare_exchange_strong(found, named(whom), std::memory_order_acq_rel)) return true;
      if (found == named(by)) return false;
      if (found == named(whom)) return true;
    }
    return false;  // each rank is expelled once at most, so only spoilt memory is full
  }

  bool contains(int rank) const {
    for (const std::atomic<std::uint32_t>& entry : entries_) {
      const std::uint32_t found = entry.load(std::memory_order_acquire);
      if (found == 0) return false;
      if (found == named(rank)) return true;
    }
    return false;
  }

 private:
  static std::uint32_t named(int rank) { return static_cast<std::uint32_t>(rank) + 1; }

  std::atomic<std::uint32_t> entries_[kMostWorkersOfAHost];
};

}  // namespace skein::shm
