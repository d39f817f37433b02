// Ranks as an error names them.
#pragma once

#include <string>
#include <vector>

namespace skein {

// "rank 3", "ranks 0, 2-5". They are in ascending order.
std::string print_ranks(const std::vector<int>& ranks);

}  // namespace skein
