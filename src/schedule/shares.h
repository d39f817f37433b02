// How a global batch is shared among workers.
#pragma once

#include <cstdint>
#include <vector>

namespace skein {

// As equal as whole samples allow: the first `samples % workers` get one more.
std::vector<std::int64_t> even_shares(std::int64_t samples, int workers);

// Proportional to `speeds` (samples per second; at least one positive), rounded by largest
// remainder, ties to the lower rank. Everybody gets at least one sample while there are enough.
std::vector<std::int64_t> proportional_shares(std::int64_t samples,
                                              const std::vector<double>& speeds);

}  // namespace skein
