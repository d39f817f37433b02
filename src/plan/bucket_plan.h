// Which gradients travel together.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "core/arena.h"

namespace skein {

// How large buckets are to be. A bucket closes as soon as it has reached its size.
struct Fusion {
  std::size_t first_bytes = 1 << 20;  // small, so that the wire is busy early in backward
  std::size_t bytes = std::size_t{25} << 20;

  static Fusion none() { return {1, 1}; }                 // every tensor by itself
  static Fusion whole() { return {SIZE_MAX, SIZE_MAX}; }  // all in one
  static Fusion of(std::size_t bytes) { return {bytes < (1 << 20) ? bytes : 1 << 20, bytes}; }
};

// "auto" (the defaults above), "none", or a size such as "25MB". Throws ConfigError.
Fusion parse_fusion(std::string_view text);

// Cuts the arena into ranges of whole parameters, which together cover it. Bucket 0 lies at the
// arena's end: its gradients come first in backward.
class BucketPlan {
 public:
  BucketPlan() = default;
  BucketPlan(const Arena& arena, const Fusion& fusion);

  bool operator==(const BucketPlan&) const = default;

  int count() const { return static_cast<int>(ranges_.size()); }
  Range range(int bucket) const { return ranges_[static_cast<std::size_t>(bucket)]; }
  int bucket_of(int slot) const { return bucket_of_slot_[static_cast<std::size_t>(slot)]; }
  int slots_in(int bucket) const { return slots_in_[static_cast<std::size_t>(bucket)]; }

 private:
  std::vector<Range> ranges_;
  std::vector<int> bucket_of_slot_;
  std::vector<int> slots_in_;
};

}  // namespace skein
