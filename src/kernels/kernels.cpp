#include "kernels/kernels.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <cstring>
#include <vector>

#include "kernels/clones.h"
#include "kernels/operands.h"
#include "kernels/stream.h"
#include "kernels/threads.h"

namespace skein {
namespace {

SKEIN_CLONES void fill_loop(float* dst, float value, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) dst[i] = value;
}

SKEIN_CLONES void scale_loop(float* y, float a, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) y[i] *= a;
}

SKEIN_CLONES void copy_scaled_loop(float* __restrict dst, float a, const float* __restrict src,
                                   std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) dst[i] = a * src[i];
}

SKEIN_CLONES void add_loop(float* __restrict y, const float* __restrict x, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) y[i] += x[i];
}

SKEIN_CLONES void raise_loop(float* y, float least, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) y[i] = y[i] < least ? least : y[i];
}

SKEIN_CLONES void axpy_loop(float* __restrict y, float a, const float* __restrict x,
                            std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) y[i] += a * x[i];
}

SKEIN_CLONES void add_difference_loop(float* __restrict x, const float* __restrict a,
                                      const float* __restrict s, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) x[i] += a[i] - s[i];
}

SKEIN_CLONES void mix_loop(float* __restrict x, float* __restrict y, float c, float s,
                           std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) {
    const float old_x = x[i], old_y = y[i];
    x[i] = c * old_x + s * old_y;
    y[i] = s * old_x + c * old_y;
  }
}

// y = ((y + x0) + x1) + … of `Count` vectors, from element `start` of each.
template <std::size_t Count>
[[gnu::always_inline]] inline void add_some(float* __restrict y, const float* const* x,
                                            std::size_t start, std::size_t length) {
  const float* from[Count];
  for (std::size_t k = 0; k < Count; ++k) from[k] = x[k] + start;
  for (std::size_t i = 0; i < length; ++i) {
    float value = y[i];
    for (std::size_t k = 0; k < Count; ++k) value += from[k][i];
    y[i] = value;
  }
}

// Where sum_loop may gather a block of partial sums.
enum class Gather {
  in_dst,     // dst is no source, or only the first
  apart,      // dst is a source whose turn comes later
  to_stream,  // as apart, and the result goes past the caches
};

// Goes block by block, so that partial sums stay in the first-level cache: each source is read and
// dst written just once.
SKEIN_CLONES void sum_loop(float* dst, const float* const* sources, std::size_t source_count,
                           Range part, Gather gather) {
  constexpr std::size_t kBlock = 512;
  alignas(64) float block[kBlock];
  const std::size_t end = part.offset + part.count;
  for (std::size_t start = part.offset; start < end; start += kBlock) {
    const std::size_t length = end - start < kBlock ? end - start : kBlock;
    const std::size_t bytes = length * sizeof(float);
    float* const y = gather == Gather::in_dst ? dst + start : block;
    if (y != sources[0] + start) std::memcpy(y, sources[0] + start, bytes);
    std::size_t k = 1;
    for (; k + 3 <= source_count; k += 3) add_some<3>(y, sources + k, start, length);
    if (source_count - k == 2) add_some<2>(y, sources + k, start, length);
    if (source_count - k == 1) add_some<1>(y, sources + k, start, length);
    if (gather == Gather::apart) std::memcpy(dst + start, block, bytes);
    if (gather == Gather::to_stream) stream_copy(dst + start, block, length);
  }
  if (gather == Gather::to_stream) stream_fence();
}

// Element i goes to lane i % kLanes whatever the width of the processor's vectors; 32 doubles are
// enough independent chains to hide the latency of an addition.
constexpr std::size_t kLanes = 32;
using Lanes = std::array<double, kLanes>;

// Inlined into each of its users' clones.
template <typename ValueAt>
[[gnu::always_inline]] inline void add_squares(double* __restrict lanes, std::size_t count,
                                               ValueAt value_at) {
  double partial[kLanes] = {};
  std::size_t i = 0;
  for (; i + kLanes <= count; i += kLanes)
    for (std::size_t lane = 0; lane < kLanes; ++lane) {
      const double value = value_at(i + lane);
      partial[lane] += value * value;
    }
  for (std::size_t lane = 0; i + lane < count; ++lane) {
    const double value = value_at(i + lane);
    partial[lane] += value * value;
  }
  for (std::size_t lane = 0; lane < kLanes; ++lane) lanes[lane] = partial[lane];
}

SKEIN_CLONES void squared_norm_loop(double* __restrict lanes, const float* __restrict x,
                                    std::size_t count) {
  add_squares(lanes, count, [=](std::size_t i) { return static_cast<double>(x[i]); });
}

SKEIN_CLONES void squared_distance_loop(double* __restrict lanes, const float* __restrict x,
                                        const float* __restrict y, std::size_t count) {
  add_squares(lanes, count,
              [=](std::size_t i) { return static_cast<double>(x[i]) - static_cast<double>(y[i]); });
}

// A difference squared is added to its lane as soon as it is known, so that one pass is enough.
SKEIN_CLONES void move_by_mean_loop(double* __restrict lanes, float* __restrict x, float a,
                                    const float* __restrict sum, const float* __restrict s,
                                    std::size_t count) {
  add_squares(lanes, count, [=](std::size_t i) {
    const float mean = a * sum[i], old = s[i];
    x[i] += mean - old;
    return static_cast<double>(old) - static_cast<double>(mean);
  });
}

SKEIN_CLONES void become_mean_loop(double* __restrict lanes, float* __restrict x, float a,
                                   const float* __restrict sum, std::size_t count) {
  add_squares(lanes, count, [=](std::size_t i) {
    const float mean = a * sum[i], old = x[i];
    x[i] = mean;
    return static_cast<double>(old) - static_cast<double>(mean);
  });
}

double added_up(Lanes& lanes) {
  for (std::size_t width = kLanes / 2; width > 0; width /= 2)
    for (std::size_t lane = 0; lane < width; ++lane) lanes[lane] += lanes[lane + width];
  return lanes[0];
}

// Adds up what `of_piece(lanes, range)` makes of each piece of [0, count), in their order, so that
// it does not matter which thread made which. A row of pieces at a time: a kernel allocates
// nothing.
template <typename OfPiece>
double added_up_by_pieces(std::size_t count, const OfPiece& of_piece) {
  constexpr std::size_t kRow = 256;
  std::array<double, kRow> row;
  double total = 0;
  for (std::size_t first = 0; first < count; first += kRow * kThreadPiece) {
    const std::size_t pieces = std::min(kRow, (count - first + kThreadPiece - 1) / kThreadPiece);
    for_pieces(pieces, [&](std::size_t piece) {
      const std::size_t begin = first + piece * kThreadPiece;
      Lanes lanes;
      of_piece(lanes, Range{begin, std::min(kThreadPiece, count - begin)});
      row[piece] = added_up(lanes);
    });
    for (std::size_t piece = 0; piece < pieces; ++piece) total += row[piece];
  }
  return total;
}

// Past the caches: needs a stream_fence() afterwards.
void copy_part(float* dst, const float* src, Range part, bool past_the_caches) {
  if (past_the_caches)
    stream_copy(dst + part.offset, src + part.offset, part.count);
  else
    std::memcpy(dst + part.offset, src + part.offset, part.count * sizeof(float));
}

}  // namespace

void copy(Span dst, Span src) {
  if (dst.device != src.device &&
      (dst.device.kind == Device::gpu || src.device.kind == Device::gpu)) {
    SKEIN_CHECK(dst.type == src.type && dst.count == src.count,
                "a copy of {} elements to {}, or of another type", src.count, dst.count);
    return device_of(dst.device.kind == Device::gpu ? dst : src)->copy(dst, src);
  }
  check_operands(dst.type, dst, src);
  if (DeviceKernels* const device = device_of(dst)) return device->copy(dst, src);
  const std::size_t count = host_count(dst);
  if (count == 0) return;
  if (dst.type != Type::f32) return static_cast<void>(std::memcpy(dst.data, src.data, dst.bytes()));
  const bool stream = count >= kStreamFloats;
  parallel(count, [=](Range part) {
    copy_part(floats(dst), floats(src), part, stream);
    if (stream) stream_fence();
  });
}

// Block by block: the second copy finds its source in the cache.
void copy_to_both(Span one, Span two, Span src) {
  constexpr std::size_t kBlock = 2048;
  check_operands(Type::f32, one, two, src);
  if (DeviceKernels* const device = device_of(one)) return device->copy_to_both(one, two, src);
  const std::size_t count = host_count(src);
  const bool stream = count >= kStreamFloats;
  parallel(count, [=](Range part) {
    for (std::size_t at = part.offset; at < part.end(); at += kBlock) {
      const Range block{at, std::min(kBlock, part.end() - at)};
      copy_part(floats(one), floats(src), block, stream);
      copy_part(floats(two), floats(src), block, stream);
    }
    if (stream) stream_fence();
  });
}

void copy_scaled(Span dst, float a, Span src) {
  check_operands(Type::f32, dst, src);
  if (DeviceKernels* const device = device_of(dst)) return device->copy_scaled(dst, a, src);
  parallel(host_count(dst), [=](Range part) {
    copy_scaled_loop(floats(dst) + part.offset, a, floats(src) + part.offset, part.count);
  });
}

void fill(Span dst, float value) {
  check_operands(Type::f32, dst);
  if (DeviceKernels* const device = device_of(dst)) return device->fill(dst, value);
  const std::size_t count = host_count(dst);
  if (count == 0) return;
  // Processors clear memory without reading it first; bench_kernels shows the difference.
  const bool zero = std::bit_cast<std::uint32_t>(value) == 0;
  parallel(count, [=](Range part) {
    float* const to = floats(dst) + part.offset;
    zero ? static_cast<void>(std::memset(to, 0, part.count * sizeof(float)))
         : fill_loop(to, value, part.count);
  });
}

void scale(Span y, float a) {
  check_operands(Type::f32, y);
  if (DeviceKernels* const device = device_of(y)) return device->scale(y, a);
  parallel(host_count(y), [=](Range part) { scale_loop(floats(y) + part.offset, a, part.count); });
}

void add(Span y, Span x) {
  check_operands(Type::f32, y, x);
  if (DeviceKernels* const device = device_of(y)) return device->add(y, x);
  parallel(host_count(y), [=](Range part) {
    add_loop(floats(y) + part.offset, floats(x) + part.offset, part.count);
  });
}

void axpy(Span y, float a, Span x) {
  check_operands(Type::f32, y, x);
  if (DeviceKernels* const device = device_of(y)) return device->axpy(y, a, x);
  parallel(host_count(y), [=](Range part) {
    axpy_loop(floats(y) + part.offset, a, floats(x) + part.offset, part.count);
  });
}

void raise_to(Span y, float least) {
  check_operands(Type::f32, y);
  if (DeviceKernels* const device = device_of(y)) return device->raise_to(y, least);
  parallel(host_count(y),
           [=](Range part) { raise_loop(floats(y) + part.offset, least, part.count); });
}

void sum(Span dst, std::span<const float* const> sources) {
  SKEIN_CHECK(!sources.empty(), "a sum of no vectors");
  SKEIN_CHECK(dst.device.kind != Device::gpu, "a kernel of the host was given memory of a device");
  check_operands(Type::f32, dst);
  const std::size_t count = host_count(dst);
  const auto later = sources.subspan(1);
  Gather gather = Gather::in_dst;
  if (std::find(later.begin(), later.end(), floats(dst)) != later.end())
    gather = Gather::apart;
  else if (count >= kStreamFloats && sources[0] != floats(dst))
    gather = Gather::to_stream;
  parallel(count, [&](Range part) {
    sum_loop(floats(dst), sources.data(), sources.size(), part, gather);
  });
}

void sum(Span dst, std::span<const Span> sources) {
  for (const Span source : sources) check_operands(Type::f32, dst, source);
  if (DeviceKernels* const device = device_of(dst)) return device->sum(dst, sources);
  std::vector<const float*> values;
  values.reserve(sources.size());
  for (const Span source : sources) values.push_back(floats(source));
  sum(dst, values);
}

void add_difference(Span x, Span a, Span s) {
  check_operands(Type::f32, x, a, s);
  if (DeviceKernels* const device = device_of(x)) return device->add_difference(x, a, s);
  parallel(host_count(x), [=](Range part) {
    add_difference_loop(floats(x) + part.offset, floats(a) + part.offset, floats(s) + part.offset,
                        part.count);
  });
}

void mix(Span x, Span y, float c, float s) {
  check_operands(Type::f32, x, y);
  if (DeviceKernels* const device = device_of(x)) return device->mix(x, y, c, s);
  parallel(host_count(x), [=](Range part) {
    mix_loop(floats(x) + part.offset, floats(y) + part.offset, c, s, part.count);
  });
}

Figure squared_norm(Span x) {
  check_operands(Type::f32, x);
  if (DeviceKernels* const device = device_of(x)) return device->squared_norm(x);
  return added_up_by_pieces(host_count(x), [=](Lanes& lanes, Range part) {
    squared_norm_loop(lanes.data(), floats(x) + part.offset, part.count);
  });
}

Figure squared_distance(Span x, Span y) {
  check_operands(Type::f32, x, y);
  if (DeviceKernels* const device = device_of(x)) return device->squared_distance(x, y);
  return added_up_by_pieces(host_count(x), [=](Lanes& lanes, Range part) {
    squared_distance_loop(lanes.data(), floats(x) + part.offset, floats(y) + part.offset,
                          part.count);
  });
}

Figure move_by_mean(Span x, float a, Span sum, Span s) {
  check_operands(Type::f32, x, sum, s);
  if (DeviceKernels* const device = device_of(x)) return device->move_by_mean(x, a, sum, s);
  return added_up_by_pieces(host_count(x), [=](Lanes& lanes, Range part) {
    move_by_mean_loop(lanes.data(), floats(x) + part.offset, a, floats(sum) + part.offset,
                      floats(s) + part.offset, part.count);
  });
}

Figure become_mean(Span x, float a, Span sum) {
  check_operands(Type::f32, x, sum);
  if (DeviceKernels* const device = device_of(x)) return device->become_mean(x, a, sum);
  return added_up_by_pieces(host_count(x), [=](Lanes& lanes, Range part) {
    become_mean_loop(lanes.data(), floats(x) + part.offset, a, floats(sum) + part.offset,
                     part.count);
  });
}

}  // namespace skein
