// A plain struct as a message: its bytes, exactly.
#pragma once

#include <cstring>
#include <type_traits>

#include "core/span.h"

namespace skein {

// T has no padding, so that equal values are equal messages and nothing else of this process's
// memory travels, and no pointers.
template <typename T>
inline constexpr bool kIsMessage =
    std::has_unique_object_representations_v<T>&& std::is_trivially_copyable_v<T>;

// The struct itself, to be sent from or received into.
template <typename T>
Span message_in(T& value) {
  static_assert(kIsMessage<T>);
  return {&value, sizeof(T), Device::cpu, Type::byte};
}

// Into and out of a message of sizeof(T) bytes.
template <typename T>
void pack(std::span<std::byte> message, const T& value) {
  static_assert(kIsMessage<T>);
  SKEIN_CHECK(message.size() == sizeof(T), "{} of {} bytes", message.size(), sizeof(T));
  std::memcpy(message.data(), &value, sizeof(T));
}

template <typename T>
T unpack(std::span<const std::byte> message) {
  static_assert(kIsMessage<T>);
  SKEIN_CHECK(message.size() == sizeof(T), "{} of {} bytes", message.size(), sizeof(T));
  T value;
  std::memcpy(&value, message.data(), sizeof(T));
  return value;
}

}  // namespace skein
