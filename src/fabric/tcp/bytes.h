// Numbers and texts as they lie in what is sent: little-endian, at fixed places.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>

#include "core/check.h"

namespace skein::tcp {

static_assert(std::endian::native == std::endian::little, "the wire's order is the processor's");

// Puts values one after the other into memory that has room for all of them.
class ByteWriter {
 public:
  explicit ByteWriter(std::span<std::byte> into) : into_(into) {}

  template <typename Value>
  void put(const Value& value) {
    static_assert(std::is_trivially_copyable_v<Value>);
    std::memcpy(next(sizeof(value)), &value, sizeof(value));
  }
  // In a field of so many bytes, filled up with zeros; cut where it is longer.
  void put_text(std::string_view text, std::size_t bytes) {
    std::byte* field = next(bytes);
    std::memset(field, 0, bytes);
    std::memcpy(field, text.data(), std::min(text.size(), bytes));
  }

 private:
  std::byte* next(std::size_t bytes) {
    SKEIN_CHECK(bytes <= into_.size(), "{} bytes where {} have room", bytes, into_.size());
    std::byte* at = into_.data();
    into_ = into_.subspan(bytes);
    return at;
  }
  std::span<std::byte> into_;
};

// The other way round. Requires that all that is asked for is there.
class ByteReader {
 public:
  explicit ByteReader(std::span<const std::byte> from) : from_(from) {}

  template <typename Value>
  Value get() {
    static_assert(std::is_trivially_copyable_v<Value>);
    Value value;
    std::memcpy(&value, next(sizeof(value)), sizeof(value));
    return value;
  }
  // Up to the first zero. What no terminal should show becomes a question mark.
  std::string get_text(std::size_t bytes) {
    const auto* field = reinterpret_cast<const char*>(next(bytes));
    std::string text(field, ::strnlen(field, bytes));
    for (char& c : text)
      if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) c = '?';
    return text;
  }
  std::size_t left() const { return from_.size(); }

 private:
  const std::byte* next(std::size_t bytes) {
    SKEIN_CHECK(bytes <= from_.size(), "{} bytes wanted where {} are left", bytes, from_.size());
    const std::byte* at = from_.data();
    from_ = from_.subspan(bytes);
    return at;
  }
  std::span<const std::byte> from_;
};

}  // namespace skein::tcp
