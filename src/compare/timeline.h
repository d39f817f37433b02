// A few steps of a run, cut out of the middle of its trace.
#pragma once

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace skein::compare {

struct TimelineSpan {
  std::string lane;  // as trace files name it: "forward", "wait", "all-reduce"
  double begin_ms = 0, end_ms = 0;
};

struct TimelineWorker {
  int rank = 0;
  std::vector<TimelineSpan> spans;  // by their begin
};

struct Timeline {
  double from_ms = 0;    // where in the run the first step begins
  double length_ms = 0;  // spans lie in [0, length_ms]
  int steps = 0;         // of the slowest worker
  std::vector<TimelineWorker> workers;
};

// `steps` steps of the worker that makes the fewest, and what all did meanwhile; at most `workers`
// of them. From the middle, unless something took unusually long there. Empty, without workers,
// where the file is not there or shows no steps.
Timeline read_timeline(const std::filesystem::path& trace, int steps = 8, int workers = 16);

nlohmann::json to_json(const Timeline& timeline);

}  // namespace skein::compare
