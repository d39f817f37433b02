#include "fabric/tcp/frame.h"

#include <fmt/format.h>

#include <algorithm>

#include "fabric/fabric.h"
#include "fabric/tcp/bytes.h"
#include "skein/error.h"

namespace skein::tcp {
namespace {

constexpr std::uint16_t kMark = 0x5ea1;

std::uint32_t longest_body(Kind kind) {
  switch (kind) {
    case Kind::data:
      return kMostOfAFrame;
    case Kind::failed:
      return kMostOfAText;
    default:
      return 0;
  }
}

}  // namespace

FrameBytes encode(const Frame& frame) {
  FrameBytes out;
  ByteWriter writer(out);
  writer.put(kMark);
  writer.put(static_cast<std::uint8_t>(frame.kind));
  writer.put(static_cast<std::uint8_t>(frame.prompt ? 1 : 0));
  writer.put(frame.channel);
  writer.put(frame.number);
  writer.put(frame.length);
  writer.put(frame.total);
  writer.put(frame.offset);
  writer.put(frame.sequence);
  return out;
}

Frame decode_frame(std::span<const std::byte, kFrameBytes> bytes) {
  const auto require = [](bool holds, const char* what) {
    if (!holds) throw IoError(fmt::format("it sent a frame with {}", what));
  };
  ByteReader reader(bytes);
  require(reader.get<std::uint16_t>() == kMark, "another beginning");
  const auto kind = reader.get<std::uint8_t>();
  require(kind >= static_cast<std::uint8_t>(Kind::data) &&
              kind <= static_cast<std::uint8_t>(Kind::widen),
          "an unknown kind");
  const auto prompt = reader.get<std::uint8_t>();
  require(prompt <= 1, "an unknown mark");
  Frame frame;
  frame.kind = static_cast<Kind>(kind);
  frame.prompt = prompt == 1;
  frame.channel = reader.get<std::uint32_t>();
  frame.number = reader.get<std::uint32_t>();
  frame.length = reader.get<std::uint32_t>();
  frame.total = reader.get<std::uint64_t>();
  frame.offset = reader.get<std::uint64_t>();
  frame.sequence = reader.get<std::uint64_t>();
  require((frame.sequence != 0) == numbered(frame.kind), "an impossible number");
  require(frame.channel < static_cast<std::uint32_t>(kMostChannels), "an impossible channel");
  require(frame.length <= longest_body(frame.kind), "an impossible length");
  if (frame.kind == Kind::data) {
    require(frame.total <= kMostOfAMessage && frame.offset <= frame.total &&
                frame.length <= frame.total - frame.offset,
            "bytes beyond its message");
    // Every part is as long as it can be: so whole values arrive, and nobody sends single bytes.
    require(frame.length == std::min<std::uint64_t>(kMostOfAFrame, frame.total - frame.offset) &&
                frame.offset % kMostOfAFrame == 0 && (frame.length > 0 || frame.total == 0),
            "another part of its message than there is");
  }
  return frame;
}

}  // namespace skein::tcp
