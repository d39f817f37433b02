// How a global batch is shared among workers.
#pragma once

#include <cstdint>
#include <vector>

namespace skein {

// One worker's part of a global batch.
struct Share {
  std::int64_t begin = 0;
  std::int64_t count = 0;

  bool operator==(const Share&) const = default;
};

// Where rank `rank`'s part lies when ranks take `counts` one after the other.
Share share_of(const std::vector<std::int64_t>& counts, int rank);

// As equal as whole samples allow: the first `samples % workers` get one more.
std::vector<std::int64_t> even_shares(std::int64_t samples, int workers);

// Proportional to `speeds` (samples per second; at least one positive), rounded by largest
// remainder, ties to the lower rank. Everybody gets at least one sample while there are enough.
std::vector<std::int64_t> proportional_shares(std::int64_t samples,
                                              const std::vector<double>& speeds);

}  // namespace skein
