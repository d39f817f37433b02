// The optimizer's state as a checkpoint's writer is shown it.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "skein/error.h"
#include "strategy/strategy.h"
#include "toy/toy_device.h"

namespace skein::conformance {

using WholeState = std::map<std::string, std::vector<float>>;

// As planes of `size` elements, by name, on every rank: stream_state() to each of them in turn.
inline Task<WholeState> whole_state(Fabric& fabric, Strategy& strategy, std::size_t size) {
  WholeState state;
  for (int to = 0; to < fabric.size(); ++to) {
    std::size_t end = 0;
    const TakeState take = [&](const std::string& name, Range range, Span values) {
      auto& plane = state[name];
      if (plane.empty()) {
        plane.resize(size);
        end = 0;
      }
      if (range.offset != end || values.count != range.count || range.end() > size)
        throw Error("shown " + std::to_string(range.offset) + " after " + std::to_string(end));
      const auto shown = toy::floats_of(values);
      std::copy(shown.begin(), shown.end(),
                plane.begin() + static_cast<std::ptrdiff_t>(range.offset));
      end = range.end();
    };
    co_await strategy.stream_state(to, take);
    if (to == fabric.rank() && !state.empty() && end != size) throw Error("not the whole of it");
    if (to > fabric.rank() && end != 0) throw Error("shown what is another rank's to write");
  }
  co_return state;
}

}  // namespace skein::conformance
