// A plain struct as a message: its bytes, exactly.
#pragma once

#include <cstring>
#include <type_traits>

#include "core/span.h"

namespace skein {

// How many elements of a message a T takes.
template <typename T>
inline constexpr std::size_t kPacked = (sizeof(T) + sizeof(float) - 1) / sizeof(float);

// T has no padding, so that equal values are equal messages, and no pointers. Requires
// message.count == kPacked<T>.
template <typename T>
void pack(Span message, const T& value) {
  static_assert(std::has_unique_object_representations_v<T> && std::is_trivially_copyable_v<T>);
  SKEIN_CHECK(message.count == kPacked<T>, "{} of {} elements", message.count, kPacked<T>);
  std::memcpy(message.data, &value, sizeof(T));
}

template <typename T>
T unpack(Span message) {
  static_assert(std::has_unique_object_representations_v<T> && std::is_trivially_copyable_v<T>);
  SKEIN_CHECK(message.count == kPacked<T>, "{} of {} elements", message.count, kPacked<T>);
  T value;
  std::memcpy(&value, message.data, sizeof(T));
  return value;
}

}  // namespace skein
