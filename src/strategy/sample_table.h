// What every worker knows of all workers' progress, and passes on with every message.
#pragma once

#include <cstdint>
#include <vector>

#include "core/exact_count.h"

namespace skein {

// How many samples each worker has computed, merged by maximum, and whether one wants to stop.
class SampleTable {
 public:
  explicit SampleTable(int workers) : counts_(static_cast<std::size_t>(workers)) {}

  void add(int rank, std::int64_t samples) {
    counts_[static_cast<std::size_t>(rank)] += samples;
    sum_ += samples;
  }
  std::int64_t of(int rank) const { return counts_[static_cast<std::size_t>(rank)]; }
  std::int64_t sum() const { return sum_; }

  bool stop = false;

  // As part of a message of that many floats.
  std::size_t floats() const { return 1 + counts_.size() * kCountParts; }
  void write(Span row) const {
    row[0] = stop ? 1 : 0;
    for (std::size_t i = 0; i < counts_.size(); ++i) put_count(row.at(place(i)), counts_[i]);
  }

  // The same with those ranks alone for whom `wanted(rank)` holds, and 0 for the others: rows of
  // which each has other ranks may be added up.
  template <typename Wanted>
  void write_part(Span row, Wanted wanted) const {
    row[0] = stop ? 1 : 0;
    for (std::size_t i = 0; i < counts_.size(); ++i)
      put_count(row.at(place(i)), wanted(static_cast<int>(i)) ? counts_[i] : 0);
  }

  // Takes over all that the row has, more or less.
  void replace(Span row) {
    stop = row[0] > 0;
    sum_ = 0;
    for (std::size_t i = 0; i < counts_.size(); ++i) {
      if (const std::int64_t agreed = get_count(row.at(place(i))); agreed > 0) counts_[i] = agreed;
      sum_ += counts_[i];
    }
  }

  void merge(Span row) {
    stop = stop || row[0] > 0;
    for (std::size_t i = 0; i < counts_.size(); ++i) {
      const std::int64_t heard = get_count(row.at(place(i)));
      if (heard <= counts_[i]) continue;
      sum_ += heard - counts_[i];
      counts_[i] = heard;
    }
  }

 private:
  static Range place(std::size_t i) { return {1 + i * kCountParts, kCountParts}; }

  std::vector<std::int64_t> counts_;
  std::int64_t sum_ = 0;
};

}  // namespace skein
