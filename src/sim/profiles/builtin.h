// The built-in profiles: an architecture each, with a published time.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "sim/profile.h"
#include "sim/profiles/architecture.h"

namespace skein::sim {

// Spreads `iteration`, the forward and backward of `batch` samples, over the layers in proportion
// to their operations: a third to forward, the rest to backward. The sums are exact; what rounding
// to nanoseconds leaves goes to the layer that computes most.
Profile spread(const Architecture& architecture, std::int64_t batch, Duration iteration);

// Nothing when no built-in profile has this name.
std::optional<Profile> builtin_profile(std::string_view name);

}  // namespace skein::sim
