// Two comparisons side by side: what changed, and whether by more than rounds differ.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "compare/figures.h"

namespace skein::compare {

struct FigureChange {
  std::string key;
  Spread before, after;
  Apart apart = Apart::unknown;

  // After over before; 0 where one of them has no median, or before is 0.
  double ratio() const;
};

struct EntryChange {
  std::string name;
  bool before = false, after = false;  // which of the two has it
  std::vector<FigureChange> figures;   // that both have
};

// Entries of two compare.json, matched by their names: those of `before` in its order, then those
// that only `after` has. Error for what is no such object.
std::vector<EntryChange> changes_between(const nlohmann::json& before, const nlohmann::json& after);

std::string change_table(const std::vector<EntryChange>& changes);

// A sentence for each change beyond the spread, the larger first, and one about the rest.
std::vector<std::string> change_sentences(const std::vector<EntryChange>& changes);

nlohmann::json to_json(const std::vector<EntryChange>& changes);

}  // namespace skein::compare
