// The table that a terminal shows.
#pragma once

#include <string>
#include <vector>

#include "compare/comparison.h"

namespace skein::compare {

// Rows that appear one by one: columns are as wide as what may come.
class LiveTable {
 public:
  explicit LiveTable(const Comparison& comparison);

  std::string head() const;  // two lines
  std::string line(const std::string& name, const Run& run) const;

 private:
  std::vector<const Figure*> columns_;
  std::size_t name_width_ = 0;
  int rounds_ = 1;
};

// Medians over the rounds; the range of the rounds too where it matters most: of the time to the
// target and of the accuracy, else of the speed.
std::string median_table(const Comparison& comparison);

// What was chosen for each entry and what finding it cost; empty: nothing was searched.
std::string search_table(const Comparison& comparison);

// Columns padded to their widest cell, the first to the left; the first row is the head.
std::string aligned(const std::vector<std::vector<std::string>>& rows);

std::size_t shown_width(const std::string& text);  // characters, not bytes

}  // namespace skein::compare
