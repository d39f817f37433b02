#include "launch/restart_judge.h"

#include <fmt/format.h>

#include <algorithm>

namespace skein {

std::string RestartJudge::why_not(std::int64_t samples, bool saved) {
  constexpr int kMostStuck = 2;
  stuck_ = saved || samples > best_ ? 0 : stuck_ + 1;
  best_ = std::max(best_, samples);
  if (restarts_ >= most_) return fmt::format("{} of {} were made", restarts_, most_);
  if (stuck_ >= kMostStuck)
    return fmt::format("{} of {} were made, and the run fails where it failed before", restarts_,
                       most_);
  ++restarts_;
  return "";
}

}  // namespace skein
