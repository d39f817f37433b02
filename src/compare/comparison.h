// Everything that is known of a comparison, while it runs and at its end.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "compare/claims.h"
#include "compare/entries.h"
#include "compare/run.h"
#include "compare/search.h"
#include "compare/timeline.h"

namespace skein::compare {

struct Row {
  Entry entry;
  std::string strategy;
  double summed_speed = 0;  // samples/s if nobody ever waited; 0: nobody knows
  std::optional<Search> search;
  std::vector<Run> runs;  // of the rounds so far
  Timeline timeline;

  std::vector<RunFigures> good() const;  // of the rounds that ended well
  RowFigures figures(bool target) const { return figures_over(good(), target); }
  std::string error() const;  // of the first round that failed; empty: none did
};

struct Comparison {
  std::string kind = "train";  // or "simulate"
  std::string title, typed;    // the command that made it
  std::string started;         // when, in UTC
  Job job;                     // what all entries share
  int rounds = 1;
  int workers = 0;
  double target = 0;  // accuracy; 0: none
  std::uint64_t seed = 1;
  std::vector<std::string> expect;
  bool running = false;   // runs are being made
  bool complete = false;  // every run was made
  std::vector<Row> rows;

  bool failed() const;  // some run did
};

// The largest number of samples at which every entry's accuracy is known; 0: there is none.
double equal_samples(const Comparison& comparison);

Claims claims_of(const Comparison& comparison);

// One object with every figure: what compare.json holds and the report shows.
nlohmann::json to_json(const Comparison& comparison);

// What tables need of it, back from that object. Error for what is none.
Comparison comparison_from_json(const nlohmann::json& json);

// Reads a compare.json, or that of the folder `path`. ConfigError: there is none, or it is no
// comparison.
nlohmann::json read_comparison(const std::string& path);

}  // namespace skein::compare
