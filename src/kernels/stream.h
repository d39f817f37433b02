// Writes past the caches.
#pragma once

#include <cstddef>
#include <cstring>

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

namespace skein {

// From this size on a vector leaves even a large last-level cache before anyone reads it again.
// Writing past the caches then saves reading what is about to be overwritten: a third of the
// traffic of a copy. The C library would do the same, but where it misjudges the cache (virtual
// machines) it starts at hundreds of megabytes.
constexpr std::size_t kStreamFloats = std::size_t{32} * 1024 * 1024 / sizeof(float);

// memcpy of `count` floats. Other threads see the result only after stream_fence().
inline void stream_copy(float* dst, const float* src, std::size_t count) {
#if defined(__SSE2__)
  std::size_t i = 0;
  for (; i < count && reinterpret_cast<std::size_t>(dst + i) % 16 != 0; ++i) dst[i] = src[i];
  for (; i + 16 <= count; i += 16) {
    _mm_stream_ps(dst + i, _mm_loadu_ps(src + i));
    _mm_stream_ps(dst + i + 4, _mm_loadu_ps(src + i + 4));
    _mm_stream_ps(dst + i + 8, _mm_loadu_ps(src + i + 8));
    _mm_stream_ps(dst + i + 12, _mm_loadu_ps(src + i + 12));
  }
  for (; i < count; ++i) dst[i] = src[i];
#else
  std::memcpy(dst, src, count * sizeof(float));
#endif
}

inline void stream_fence() {
#if defined(__SSE2__)
  _mm_sfence();
#endif
}

}  // namespace skein
