// A run of float32 values somewhere in memory, owned by someone else.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/check.h"

namespace skein {

// Absent: counted but not there. Kernels do nothing with it, so that what a program moves can be
// simulated without the memory.
enum class Device : std::uint8_t { cpu, cuda, absent };

// Where a run of elements lies inside a plane: [offset, offset + count).
struct Range {
  std::size_t offset = 0;
  std::size_t count = 0;

  std::size_t end() const { return offset + count; }
  bool operator==(const Range&) const = default;
};

struct Span {
  float* data = nullptr;
  std::size_t count = 0;
  Device device = Device::cpu;

  std::size_t bytes() const { return count * sizeof(float); }
  float* begin() const { return data; }
  float* end() const { return data + count; }
  float& operator[](std::size_t i) const { return data[i]; }

  // The elements `range` of this span. Aborts when they do not all lie inside it.
  Span at(Range range) const {
    SKEIN_CHECK(range.offset <= count && range.count <= count - range.offset,
                "range [{}, +{}) of a span of {}", range.offset, range.count, count);
    return {data ? data + range.offset : nullptr, range.count, device};
  }
};

}  // namespace skein
