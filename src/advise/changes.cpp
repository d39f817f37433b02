#include "advise/changes.h"

#include <cmath>

#include "core/check.h"

namespace skein::advise {
namespace {

double ratio(double a, double b) { return a > b ? a / b : b / a; }

// The answer at `low` is before; at `high` it is another.
Change bisect(double low, double high, const std::string& before, std::string after,
              double precision, const std::function<std::string(double)>& answer) {
  while (ratio(low, high) > precision) {
    const double middle = std::sqrt(low * high);
    std::string there = answer(middle);
    if (there == before) {
      low = middle;
    } else {
      high = middle;
      after = std::move(there);
    }
  }
  return {high, before, std::move(after)};
}

}  // namespace

std::vector<Change> find_changes(const Walk& walk,
                                 const std::function<std::string(double)>& answer) {
  SKEIN_CHECK(walk.from > 0 && walk.to > 0 && walk.stride > 1 && walk.precision > 1,
              "a walk from {} to {}", walk.from, walk.to);
  std::vector<Change> changes;
  const bool up = walk.to > walk.from;
  std::string here = answer(walk.from);
  for (double at = walk.from; at != walk.to && std::ssize(changes) < walk.most;) {
    double next = up ? at * walk.stride : at / walk.stride;
    if (up ? next > walk.to : next < walk.to) next = walk.to;
    const std::string there = answer(next);
    // Several may lie between the two places: each is where the answer that came before it ends.
    for (double low = at; here != there && std::ssize(changes) < walk.most;) {
      changes.push_back(bisect(low, next, here, there, walk.precision, answer));
      low = changes.back().at;
      here = changes.back().after;
    }
    at = next;
  }
  return changes;
}

}  // namespace skein::advise
