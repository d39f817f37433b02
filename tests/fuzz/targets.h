// What reads what arrives from outside, given any bytes: it understands them or throws IoError.
//
// libFuzzer calls these for as long as it is given (`make fuzz`); the unit tests call them with the
// corpus and with changes to it, whatever the compiler.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

namespace skein::fuzz {

using Bytes = std::span<const std::byte>;

void frames(Bytes bytes);      // headers of frames, one after the other
void connection(Bytes bytes);  // what a peer sends during a run, and what this side does meanwhile
void meeting(Bytes bytes);     // hellos, answers, rosters
void agent(Bytes bytes);       // what a launcher and the agent of a host say

struct Target {
  const char* name;
  void (*run)(Bytes bytes);
};
inline std::vector<Target> targets() {
  return {{"frames", frames}, {"connection", connection}, {"meeting", meeting}, {"agent", agent}};
}

// Takes an input apart, from its beginning; zeros where it has ended.
class Input {
 public:
  explicit Input(Bytes bytes) : left_(bytes) {}
  bool empty() const { return left_.empty(); }
  std::size_t byte() { return empty() ? 0 : std::to_integer<std::size_t>(take(1).front()); }
  std::size_t number() {
    const std::size_t low = byte();
    return low | byte() << 8;
  }
  Bytes take(std::size_t count) {
    const Bytes out = left_.first(count < left_.size() ? count : left_.size());
    left_ = left_.subspan(out.size());
    return out;
  }
  Bytes rest() const { return left_; }

 private:
  Bytes left_;
};

}  // namespace skein::fuzz
