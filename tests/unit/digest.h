// A short number for a long sequence, so that a test can notice when another machine computes
// other bits.
#pragma once

#include <bit>
#include <cstdint>

namespace skein {

// Every bit of every word counts, and so does their order.
class Digest {
 public:
  void add(std::uint64_t word) { value_ = std::rotl(value_ ^ word, 29) * 0x100000001b3u; }
  void add(double number) { add(std::bit_cast<std::uint64_t>(number)); }
  void add(float number) { add(std::uint64_t{std::bit_cast<std::uint32_t>(number)}); }

  std::uint64_t value() const { return value_; }

 private:
  std::uint64_t value_ = 0xcbf29ce484222325u;
};

}  // namespace skein
