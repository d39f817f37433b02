// The answers over bandwidth and heterogeneity.
#pragma once

#include <vector>

#include "advise/advice.h"

namespace skein::advise {

struct Cell {
  Setup setup;      // that is recommended there
  double gain = 1;  // its samples per second over those of plain allreduce
};

struct Map {
  std::vector<double> bandwidths;  // bytes per second of a host, ascending: columns
  std::vector<double> ratios;      // fastest worker over slowest, ascending: rows
  std::vector<Cell> cells;         // row by row

  const Cell& at(std::size_t row, std::size_t column) const {
    return cells[row * bandwidths.size() + column];
  }
};

// The cluster of the advice with 7 bandwidths from 100 Mb/s to 100 Gb/s and 6 ratios from 1 to 8,
// each with the settings of the advice's candidates (try_again).
Map make_map(const Advice& advice, const Effort& effort, const Tell& tell);

// For terminals: a row for each ratio, a letter and the gain for each bandwidth.
std::string map_text(const Map& map);

// "L", "Ab": the strategy's letter, and b for shares by speed; on pictures and in the text.
char letter_of(const std::string& strategy);
std::string letters_of(const Setup& setup);

}  // namespace skein::advise
