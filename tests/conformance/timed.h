// Cases in which time has to pass, on machines that are busy with other things.
//
// Such a case is written in multiples of a unit of time. A rank that the machine kept from running
// for a good part of a unit proves nothing by a failure: then the case runs again with a unit twice
// as long. A fault of what is tested fails in the end all the same, with the longest unit.
#pragma once

#include <algorithm>
#include <functional>
#include <string>

#include "conformance/harness.h"
#include "skein/error.h"

namespace skein::conformance {

// A rank's part in a case whose times are multiples of `unit`. It reports failures by exceptions.
using TimedBody = std::function<Task<>(Fabric& fabric, Duration unit)>;

inline constexpr Channel kTimedMeeting = 6;  // which the cases leave alone
inline const std::string kHeldUp = "held up by the machine: ", kEndedWell = "it ended well";

// Measures for how long the machine kept this rank from running at most.
inline Task<> measure_gaps(Loop& loop, Duration unit, Duration& longest) {
  constexpr int kTicksOfAUnit = 16, kMostUnits = 1000;
  Time last = loop.now();
  for (int i = 0; i < kTicksOfAUnit * kMostUnits; ++i) {
    co_await loop.sleep_for(unit / kTicksOfAUnit);
    longest = std::max(longest, loop.now() - last);
    last = loop.now();
  }
}

// Runs `body` when all ranks are there.
inline Task<> run_timed(Fabric& fabric, const TimedBody& body, Duration unit) {
  Duration longest{0};
  std::string failure;
  {
    const ScopedJob measuring(fabric.loop().spawn(measure_gaps(fabric.loop(), unit, longest)));
    try {
      co_await fabric.barrier(kTimedMeeting, fabric.loop().now() + std::chrono::seconds(120));
      co_await body(fabric, unit);
    } catch (const std::exception& error) {
      failure = error.what();
    }
  }
  if (longest > unit / 4) throw Error(kHeldUp + (failure.empty() ? kEndedWell : failure));
  if (!failure.empty()) throw Error(failure);
}

// Runs `body` on all ranks and expects all to end well.
inline void expect_ok_in_time(const World& world, int size, Duration unit, const TimedBody& body) {
  constexpr int kMostDoublings = 5;
  for (int attempt = 0;; ++attempt, unit *= 2) {
    const auto outcomes =
        world.run(size, [&body, unit](Fabric& fabric) { return run_timed(fabric, body, unit); });
    const bool well = std::ranges::all_of(outcomes, [](const Outcome& outcome) {
      return outcome.ok || outcome.error == kHeldUp + kEndedWell;
    });
    if (well) return;
    const bool held_up = std::ranges::any_of(
        outcomes, [](const Outcome& outcome) { return outcome.error.starts_with(kHeldUp); });
    if (held_up && attempt < kMostDoublings) continue;
    for (std::size_t rank = 0; rank < outcomes.size(); ++rank)
      EXPECT_TRUE(outcomes[rank].ok) << "rank " << rank << ": " << outcomes[rank].error;
    return;
  }
}

}  // namespace skein::conformance
