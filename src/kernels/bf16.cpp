#include "kernels/bf16.h"

#include <bit>
#include <cstdint>

#include "kernels/clones.h"
#include "kernels/operands.h"
#include "kernels/threads.h"

namespace skein {
namespace {

// The bfloat16 of a float32, both as bits. A NaN whose set bits are all in the lower half would
// become an infinity; it is made quiet instead.
[[gnu::always_inline]] inline std::uint32_t upper_half(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t rounded = (bits + 0x7FFF + (bits >> 16 & 1)) >> 16;
  const std::uint32_t quiet = bits >> 16 | 0x40;
  return (bits & 0x7FFFFFFF) > 0x7F800000 ? quiet : rounded;
}

[[gnu::always_inline]] inline float widened(std::uint16_t half) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(half) << 16);
}

SKEIN_CLONES void pack_loop(std::uint16_t* __restrict packed, const float* __restrict values,
                            std::size_t count) {
  for (std::size_t i = 0; i < count; ++i)
    packed[i] = static_cast<std::uint16_t>(upper_half(values[i]));
}

SKEIN_CLONES void unpack_loop(float* __restrict values, const std::uint16_t* __restrict packed,
                              std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) values[i] = widened(packed[i]);
}

SKEIN_CLONES void add_loop(float* __restrict values, const std::uint16_t* __restrict packed,
                           std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) values[i] += widened(packed[i]);
}

SKEIN_CLONES void round_loop(float* values, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i)
    values[i] = std::bit_cast<float>(upper_half(values[i]) << 16);
}

SKEIN_CLONES void restore_loop(float* __restrict values, const float* __restrict exact,
                               std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) {
    const float value = values[i];
    values[i] =
        std::bit_cast<std::uint32_t>(value) == upper_half(exact[i]) << 16 ? exact[i] : value;
  }
}

std::uint16_t* halves(Span packed) { return static_cast<std::uint16_t*>(packed.data); }

void check_both(Span values, Span packed) {
  SKEIN_CHECK(packed.count == values.count && packed.device == values.device,
              "{} values of bfloat16 for {}, or in other memory", packed.count, values.count);
  check_operands(Type::bf16, packed);
  check_operands(Type::f32, values);
}

}  // namespace

void to_bf16(Span packed, Span values) {
  check_both(values, packed);
  if (DeviceKernels* const device = device_of(values)) return device->to_bf16(packed, values);
  parallel(host_count(values), [=](Range part) {
    pack_loop(halves(packed) + part.offset, floats(values) + part.offset, part.count);
  });
}

void from_bf16(Span values, Span packed) {
  check_both(values, packed);
  if (DeviceKernels* const device = device_of(values)) return device->from_bf16(values, packed);
  parallel(host_count(values), [=](Range part) {
    unpack_loop(floats(values) + part.offset, halves(packed) + part.offset, part.count);
  });
}

void add_bf16(Span values, Span packed) {
  check_both(values, packed);
  if (DeviceKernels* const device = device_of(values)) return device->add_bf16(values, packed);
  parallel(host_count(values), [=](Range part) {
    add_loop(floats(values) + part.offset, halves(packed) + part.offset, part.count);
  });
}

void round_to_bf16(Span values) {
  check_operands(Type::f32, values);
  if (DeviceKernels* const device = device_of(values)) return device->round_to_bf16(values);
  parallel(host_count(values),
           [=](Range part) { round_loop(floats(values) + part.offset, part.count); });
}

void restore_rounded(Span values, Span exact) {
  check_operands(Type::f32, values, exact);
  if (DeviceKernels* const device = device_of(values))
    return device->restore_rounded(values, exact);
  parallel(host_count(values), [=](Range part) {
    restore_loop(floats(values) + part.offset, floats(exact) + part.offset, part.count);
  });
}

}  // namespace skein
