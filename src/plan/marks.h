// The marks of a run: multiples of a number of samples at which something is due, such as an
// evaluation or a checkpoint. Each is passed at most once, however workers count.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <span>

#include "core/check.h"

namespace skein {

// Workers that start from the same count and pass with the same `agreed` counts have the same
// marks, even where each comes to a mark with a count of its own.
class Marks {
 public:
  static constexpr std::int64_t kNone = std::numeric_limits<std::int64_t>::max();

  // There are none.
  Marks() = default;

  // The multiples of `every` beyond `samples`, up to `last`; none if `every` is 0. With the samples
  // at which the run ends as `last`, every worker comes to all marks before it leaves, though some
  // may have counted more than others by then.
  Marks(std::int64_t every, std::int64_t samples, std::int64_t last = kNone)
      : every_(every), last_(last), next_(after(samples)) {
    SKEIN_CHECK(every >= 0 && samples >= 0, "marks every {} samples from {}", every, samples);
  }

  std::int64_t next() const { return next_; }

  // Whether a worker that has counted `samples` has come to the next mark.
  bool due(std::int64_t samples) const { return next_ != kNone && samples >= next_; }

  // The next mark was seen to, at `agreed` samples: marks up to there are past. It is past even if
  // the workers, who may have counted differently, agree on less.
  void pass(std::int64_t agreed) { next_ = after(std::max(agreed, next_)); }

 private:
  std::int64_t after(std::int64_t samples) const {
    if (every_ == 0 || samples / every_ >= kNone / every_) return kNone;
    const std::int64_t mark = (samples / every_ + 1) * every_;
    return mark <= last_ ? mark : kNone;
  }

  std::int64_t every_ = 0, last_ = kNone;
  std::int64_t next_ = kNone;
};

// Of several kinds of marks that one to which a worker that has counted `samples` has come first;
// of equal marks that of the first kind. Null: none is due. So all workers see to marks of all
// kinds in one order.
inline Marks* first_due(std::span<Marks* const> kinds, std::int64_t samples) {
  Marks* first = nullptr;
  for (Marks* const each : kinds)
    if (each->due(samples) && (!first || each->next() < first->next())) first = each;
  return first;
}

}  // namespace skein
