// What ranks tell each other of operations of NCCL, on the control plane.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <string>

namespace skein::nccl {

// A text that may be cut.
class ShortText {
 public:
  void say(const std::string& text) {
    bytes_.fill('\0');
    std::copy_n(text.begin(), std::min(text.size(), bytes_.size() - 1), bytes_.begin());
  }
  std::string str() const { return {bytes_.begin(), std::ranges::find(bytes_, '\0')}; }

 private:
  std::array<char, 304> bytes_{};
};

// A collective that a rank has come to. All ranks' are equal, or it is refused.
struct Announcement {
  std::uint64_t count = 0;
  std::uint32_t kind = 0, type = 0, wire = 0, root = 0;
  bool operator==(const Announcement&) const = default;
};

// Rank 0's answer when all have come: which one of this rank's operations it is, from 0. Or why it
// is none, and whose fault that is.
struct Ticket {
  std::uint64_t number = 0;
  std::int32_t refused = 0, peer = -1;
  ShortText why;
};

// What is told at any time, to rank 0 and by it.
struct Note {
  enum Kind : std::uint32_t {
    lost,  // `peer` is: what waits for it on devices will wait for ever
    over,  // NCCL has been aborted, because of `peer` where it is one
    ask,   // the sender and `peer` have both come to an exchange on `channel`
    grant  // it is this rank's operation `number`
  };
  std::uint32_t kind = lost;
  std::int32_t peer = -1, channel = 0, unused = 0;
  std::uint64_t number = 0;
  ShortText why;
};

}  // namespace skein::nccl
