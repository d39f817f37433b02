// Sentences about a comparison, each of which its figures support.
#pragma once

#include <string>
#include <vector>

#include "compare/figures.h"

namespace skein::compare {

// What is said about is known of each entry.
struct ClaimRow {
  std::string name, strategy;
  bool plain = false;  // the strategy with its own defaults
  RowFigures figures;
  Spread at_equal_samples;  // accuracy; without rounds: nobody knows
};

struct ClaimContext {
  double target = 0;                // accuracy; 0: none
  double equal_samples = 0;         // as many as all entries came to; 0: nobody knows
  std::vector<std::string> expect;  // names of entries that should beat the first
};

struct Claims {
  std::vector<std::string> sentences;
  std::string recommendation;  // empty: there is nothing to go by
};

// The first row is the one that others are measured by.
Claims claims_of(const std::vector<ClaimRow>& rows, const ClaimContext& context);

}  // namespace skein::compare
