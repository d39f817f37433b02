// What an operation of a fabric is known by, what it does with values, and how it fails.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>

#include "fabric/limit.h"
#include "skein/error.h"

namespace skein {

using Channel = int;

// Channels are handed out in blocks, each to one user, and never used again: what was on its way
// when its user ended cannot reach the next one. The first block is the world's own.
inline constexpr Channel kChannelBlock = 8;
inline constexpr Channel kMostChannels = 1 << 14;

// Where an operation on one channel needs a second one, it is that many further on: such channels
// are not handed out. Nor are those whose second ones the fabrics use themselves, the last two.
inline constexpr Channel kSecondChannels = kMostChannels / 2;
inline constexpr Channel kMostHandedOut = kSecondChannels - kChannelBlock;

// What travels in a collective: float32, or bfloat16 in half the bytes (fabric/half.h says what is
// rounded).
enum class Wire : std::uint8_t { f32, bf16 };

// What a receiver does with what arrives: bytes are only copied.
enum class Combine : std::uint8_t { copy, add };

// Puts what the record `from` says into `into`, which is of lower ranks. Records are plain bytes,
// all of one size. Merging must be associative; then all ranks get the same, however it is done.
using Merge = std::function<void(std::span<std::byte> into, std::span<const std::byte> from)>;

// One operation under way: what an error message needs to say of it.
struct Operation {
  const char* name;
  Channel channel;
  std::uint64_t sequence;  // how many were started on this channel before it
  Limit limit;
  bool of_all = false;  // a collective: it fails when any worker does
};
std::string describe(const Operation& operation);

// A wait that has come to its limit.
class TooLate final : public IoError {
 public:
  TooLate(const Operation& operation, int peer);
};

// An operation finds that an earlier one on its line, which failed, has closed the line. The
// earlier one knows which rank is lost; this error names the rank at the line's other end.
class LineClosed final : public IoError {
 public:
  using IoError::IoError;
};

}  // namespace skein
