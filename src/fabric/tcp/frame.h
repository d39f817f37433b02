// What workers say to each other once they have met: frames, each a header and perhaps a body.
//
// A message travels in frames of at most kMostOfAFrame bytes, and those of different channels in
// turns: so a small message never waits for the whole of a large one. Frames take any of the
// streams between two workers and so arrive in any order. Those that must not be lost with a stream
// have a sequence number, which counts the frames of one worker to the other.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

namespace skein::tcp {

enum class Kind : std::uint8_t {
  data = 1,      // bytes [offset, offset + length) of message `number`, which has `total`
  taken,         // the receiver has let go of `total` bytes of this channel so far
  refused,       // the receiver takes nothing more on this channel
  withdrawn,     // the sender sends nothing more on this channel than `total` bytes in all
  failed,        // this worker is about to end, and why (a text of `length` bytes)
  left,          // this worker has left the run; nothing comes after it
  acknowledged,  // all frames up to sequence number `total` have arrived; from here on unnumbered
  ask,           // do you make progress? `offset`: the asker's clock
  answer,        // the last sign of it is `total` nanoseconds old; `offset` as it was asked
  beat,          // this worker lives
  widen,         // this worker has use for `total` streams
};

struct Frame {
  Kind kind = Kind::data;
  std::uint32_t channel = 0;
  std::uint32_t number = 0;  // of the message, modulo 2^32
  std::uint32_t length = 0;  // of the body that follows
  std::uint64_t total = 0;
  std::uint64_t offset = 0;
  std::uint64_t sequence = 0;  // from 1
  bool prompt = false;         // somebody waits for its acknowledgement
  bool operator==(const Frame&) const = default;
};

inline constexpr std::size_t kFrameBytes = 40;
inline constexpr std::uint32_t kMostOfAFrame = 64 * 1024;
inline constexpr std::uint32_t kMostOfAText = 1024;
inline constexpr std::uint64_t kMostOfAMessage = std::uint64_t{1} << 44;

// Whether frames of this kind have a number and are sent again when a stream is lost.
inline bool numbered(Kind kind) { return kind < Kind::acknowledged; }

using FrameBytes = std::array<std::byte, kFrameBytes>;

FrameBytes encode(const Frame& frame);

// Throws IoError for what no worker sends.
Frame decode_frame(std::span<const std::byte, kFrameBytes> bytes);

}  // namespace skein::tcp
