// How fast a worker of an emulated or a virtual cluster computes, as that changes.
#pragma once

#include <string>

#include "core/clock.h"
#include "core/rng.h"

namespace skein {

// Slow periods that come and go, on each worker by itself.
struct Slowdowns {
  Duration every{};  // mean time from the end of one to the begin of the next; 0: none
  Duration lasting{};
  double factor = 1;
};

// "every=10s,for=2s,factor=3". Throws ConfigError.
Slowdowns parse_slowdowns(const std::string& text);

// One worker's speed as it changes.
class Pace {
 public:
  Pace(double speed, double jitter, const Slowdowns& slowdowns, Rng rng);

  // How much longer than the profile says a micro-batch that begins now takes.
  double next_factor(Time now);

  double fault_factor = 1;  // of faults that make the worker slow

 private:
  double speed_, jitter_;
  Slowdowns slowdowns_;
  Rng rng_;
  bool slow_ = false;
  Time change_ = kNever;  // when the present period ends
};

}  // namespace skein
