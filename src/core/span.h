// A run of values somewhere in memory, owned by someone else.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "core/check.h"

namespace skein {

// What a run of values is made of. Planes are f32; bf16 is what travels in half the bytes; messages
// are bytes.
enum class Type : std::uint8_t { f32, bf16, byte };

constexpr std::size_t size_of(Type type) {
  return type == Type::f32 ? sizeof(float) : type == Type::bf16 ? sizeof(std::uint16_t) : 1;
}

// Where memory is, and which device of its kind. On a gpu only queues touch it (kernels/queue.h).
// Absent: counted but not there; kernels do nothing with it, so that what a program moves can be
// simulated without the memory.
struct Device {
  enum Kind : std::uint8_t { cpu, gpu, absent };

  constexpr Device(Kind its_kind = cpu, std::uint8_t its_index = 0)
      : kind(its_kind), index(its_index) {}
  bool operator==(const Device&) const = default;

  Kind kind;
  std::uint8_t index;
};

// Where a run of elements lies inside a plane: [offset, offset + count).
struct Range {
  std::size_t offset = 0;
  std::size_t count = 0;

  std::size_t end() const { return offset + count; }
  bool operator==(const Range&) const = default;
};

struct Span {
  void* data = nullptr;
  std::size_t count = 0;
  Device device{};
  Type type = Type::f32;

  std::size_t bytes() const { return count * size_of(type); }

  // The elements `range` of this span. Aborts when they do not all lie inside it.
  Span at(Range range) const {
    SKEIN_CHECK(range.offset <= count && range.count <= count - range.offset,
                "range [{}, +{}) of a span of {}", range.offset, range.count, count);
    auto* const begin = static_cast<std::byte*>(data);
    return {begin ? begin + range.offset * size_of(type) : nullptr, range.count, device, type};
  }

  // The values, for who reads or writes them one by one. Aborts where this process cannot, or where
  // they are no floats.
  std::span<float> host() const {
    SKEIN_CHECK(device == Device::cpu && type == Type::f32,
                "values that are not floats of the host");
    return {static_cast<float*>(data), count};
  }
  std::span<std::byte> host_bytes() const {
    SKEIN_CHECK(device == Device::cpu, "bytes that are not in the memory of the host");
    return {static_cast<std::byte*>(data), bytes()};
  }
};

// Bytes of the host as a message. Whoever sends it does not write to it.
inline Span message_of(std::span<const std::byte> bytes) {
  return {const_cast<std::byte*>(bytes.data()), bytes.size(), Device::cpu, Type::byte};
}

}  // namespace skein
