// An emulated network link: what makes one host behave like several on a slow network.
#pragma once

#include <algorithm>
#include <cstddef>

#include "core/clock.h"

namespace skein {

// Every worker's own full-duplex link. Off by default.
struct LinkEmulation {
  double bytes_per_second = 0;  // 0: unlimited
  Duration latency{0};          // from first byte sent to first byte received

  bool on() const { return bytes_per_second > 0 || latency.count() > 0; }
  Duration transfer(std::size_t bytes) const {
    return bytes_per_second > 0 ? from_seconds(static_cast<double>(bytes) / bytes_per_second)
                                : Duration(0);
  }
};

// One direction of one link: messages pass one after the other.
class LinkLane {
 public:
  explicit LinkLane(const LinkEmulation& link) : link_(link) {}

  // A message whose first byte could pass at `earliest`: returns when it does. The lane is then
  // taken for as long as the message lasts.
  Time pass(Time earliest, std::size_t bytes) {
    const Time begin = std::max(earliest, free_at_);
    free_at_ = begin + link_.transfer(bytes);
    return begin;
  }
  Time free_at() const { return free_at_; }

 private:
  const LinkEmulation& link_;
  Time free_at_{};
};

}  // namespace skein
