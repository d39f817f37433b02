#include "cli/suggest.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <utility>

namespace skein {
namespace {

// Letters inserted, deleted, replaced or swapped with the next to get from one word to the other.
std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> before_last, last(b.size() + 1), row(b.size() + 1);
  std::iota(last.begin(), last.end(), std::size_t{0});
  for (std::size_t i = 1; i <= a.size(); ++i) {
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      row[j] = std::min({last[j] + 1, row[j - 1] + 1, last[j - 1] + (a[i - 1] != b[j - 1])});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
        row[j] = std::min(row[j], before_last[j - 2] + 1);
    }
    before_last = std::exchange(last, row);
  }
  return last[b.size()];
}

}  // namespace

std::string did_you_mean(std::string_view word, const std::vector<std::string>& known) {
  const std::size_t allowed = word.size() <= 3 ? 1 : word.size() <= 7 ? 2 : 3;
  std::vector<std::pair<std::size_t, std::string>> near;
  for (const std::string& candidate : known) {
    const bool begins = word.size() >= 3 && candidate.starts_with(word);
    const std::size_t distance = begins ? 0 : edit_distance(word, candidate);
    if (distance <= allowed) near.emplace_back(distance, fmt::format("'{}'", candidate));
  }
  if (near.empty()) return "";
  std::stable_sort(near.begin(), near.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  const std::size_t nearest = near.front().first;
  std::erase_if(near, [=](const auto& each) { return each.first > nearest; });
  if (near.size() > 3) near.resize(3);
  std::string out = "; did you mean " + near[0].second;
  for (std::size_t i = 1; i < near.size(); ++i) out += " or " + near[i].second;
  return out + "?";
}

}  // namespace skein
