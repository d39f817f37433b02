// Near matches for a misspelt word.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace skein {

// "; did you mean 'rate' or 'trace'?", with those of `known` (at most three) that are nearest to
// `word` if that is a slip or two away, or nothing.
std::string did_you_mean(std::string_view word, const std::vector<std::string>& known);

}  // namespace skein
