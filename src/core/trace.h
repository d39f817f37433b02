// What happened when, for people to look at. Strategies and trainers report; observe/ writes files.
#pragma once

#include <cstdint>
#include <string_view>

#include "core/clock.h"

namespace skein {

// The tracks of one worker in a trace.
enum class Lane : std::uint8_t {
  forward,
  backward,
  all_reduce,
  reduce_scatter,
  all_gather,
  update,
  wait,
  device_compute,  // what a device did when: forward and backward, and what the strategy put there
  device_sums,
  hidden_update,  // updates that were made while the worker's own thread did something else
  loading,        // the next batch
  evaluation,
  checkpoint
};

class Trace {
 public:
  virtual ~Trace() = default;
  // `name` must outlive the call only. Thread-safe.
  virtual void span(Lane lane, std::string_view name, Time begin, Time end) = 0;
};

class NoTrace final : public Trace {
 public:
  void span(Lane, std::string_view, Time, Time) override {}
};

}  // namespace skein
