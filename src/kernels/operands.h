// What every kernel asks of its spans.
#pragma once

#include "kernels/device_kernels.h"

namespace skein {

// Spans of one operation: all have this type and the first one's count and memory.
template <typename... Rest>
void check_operands(Type type, Span first, Rest... rest) {
  SKEIN_CHECK(first.type == type, "values of another type than the operation is for");
  [[maybe_unused]] const auto check = [&](Span other) {
    SKEIN_CHECK(other.device == first.device, "memory of different kinds in one operation");
    SKEIN_CHECK(other.type == type, "values of different types in one operation");
    SKEIN_CHECK(other.count == first.count, "spans of {} and {} elements in one operation",
                first.count, other.count);
  };
  (check(rest), ...);
}

// How many elements there are for the host to work on: none where memory is absent.
inline std::size_t host_count(Span span) { return span.device == Device::absent ? 0 : span.count; }

// The kernels of the device whose memory the span is, on this thread's queue; null where the host
// does it.
inline DeviceKernels* device_of(Span span) {
  if (span.device.kind != Device::gpu) return nullptr;
  Queue* const queue = current_queue();
  SKEIN_CHECK(queue && queue->device() == span.device,
              "a kernel on memory of a device was called where no queue of it is in use");
  return &queue->kernels();
}

// Of a span that was checked.
inline float* floats(Span span) { return static_cast<float*>(span.data); }

}  // namespace skein
