// Where along an axis, such as the bandwidth, an answer changes.
#pragma once

#include <functional>
#include <string>
#include <vector>

namespace skein::advise {

struct Change {
  double at = 0;  // the first value, seen from the start, that has the new answer
  std::string before, after;

  bool operator==(const Change&) const = default;
};

// Walks from `from` to `to` (larger or smaller, both above 0) by a factor of `stride` at a time
// and, between two places with different answers, halves the ratio until it is below `precision`:
// at most a few per cent off. Changes that come and go between two places are not seen. In the
// order in which they are met, `most` of them.
struct Walk {
  double from = 1, to = 1;
  double stride = 2;
  double precision = 1.03;
  int most = 3;
};
std::vector<Change> find_changes(const Walk& walk,
                                 const std::function<std::string(double)>& answer);

}  // namespace skein::advise
