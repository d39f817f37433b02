// The event source of something that has to be looked at again and again, since it cannot wake
// anybody: MPI makes progress only when it is called.
//
// Right after something has moved it is looked at without a pause, then ever more rarely: a look
// comes after an eighth of the time that has been quiet, so that no wait takes longer by more than
// that, and at the latest after the longest nap. An idle worker looks a thousand times a second,
// which takes one or two hundredths of a core.
#pragma once

#include <atomic>
#include <functional>

#include "core/event_source.h"

namespace skein::mpi {

class BackOff final : public EventSource {
 public:
  // `look` takes in what has arrived; true: something has moved.
  BackOff(std::function<bool()> look, Duration longest_nap);

  std::uint32_t poll() override;
  void wait(std::uint32_t ticket, Time until) override;
  void wake() override;

  // Something will move soon.
  void stir();

 private:
  std::function<bool()> look_;
  const Duration longest_nap_;
  std::atomic<Time> moved_at_;
  std::atomic<int> looks_{0};           // since then
  std::atomic<std::uint32_t> bell_{0};  // a futex
};

}  // namespace skein::mpi
