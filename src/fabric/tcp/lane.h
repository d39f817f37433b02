// One of the streams between two workers, with the frame that it brings and the one that it takes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "fabric/boxes.h"
#include "fabric/tcp/frame.h"
#include "fabric/tcp/stream.h"

namespace skein::tcp {

struct Lane {
  // What becomes of a frame's body. A copy is of a part that another lane brings, too: it waits
  // here, and counts only if it is whole first.
  enum class Body : std::uint8_t { none, direct, added, staged, copy, discarded, text };

  // What is being written: small frames, or one with a body.
  struct Departure {
    std::vector<std::byte> small;  // headers, texts
    const std::byte* body = nullptr;
    std::size_t length = 0, at = 0;    // of the body; written of both
    std::uint64_t sequence = 0;        // whose body it is
    std::unique_ptr<std::byte[]> own;  // where `body` is, once its owner has gone
    std::size_t size() const { return small.size() + length; }
  };

  explicit Lane(std::size_t its_index)
      : index(its_index), scratch(std::make_unique_for_overwrite<std::byte[]>(kMostOfAFrame)) {}

  // Whether a part of a message is on its way to where it belongs.
  bool brings_data() const {
    return body == Body::direct || body == Body::added || body == Body::staged;
  }

  // Forgets what it brings and takes: the stream is lost, or new.
  void begin_anew() {
    departing = mute = false;
    departure = {};
    header_got = 0;
    body = Body::none;
    staged.reset();
    cost = 0;
    hesitations = 0;
  }

  const std::size_t index;
  std::unique_ptr<Stream> stream;  // none: it is lost, or yet to come
  std::unique_ptr<Stream> former;  // which may be calling
  std::uint32_t attempts = 0;      // how many streams it has had
  bool begun = false;              // it has had one
  bool repairing = false;          // somebody sees to it that there is a new one

  Departure departure;
  bool departing = false;
  bool mute = false;  // nothing can be written any more; what has come can still be read

  FrameBytes header{};
  std::size_t header_got = 0;
  Frame frame;
  Body body = Body::none;
  std::size_t body_got = 0;
  std::uint64_t cost = 0;  // of the frame, against its channel's window
  int hesitations = 0;
  boxed::Inbox* box = nullptr;  // of the frame, when it is data
  std::unique_ptr<std::byte[]> scratch;
  std::unique_ptr<std::byte[]> staged;  // where the body goes that waits for its receiver
};

}  // namespace skein::tcp
