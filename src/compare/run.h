// One finished run, read from its folder.
#pragma once

#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "compare/figures.h"

namespace skein::compare {

// How good the model was after so much training.
struct CurvePoint {
  double seconds = 0, samples = 0, loss = 0;
  std::optional<double> accuracy;
};

struct ConsensusPoint {
  double seconds = 0, value = 0;
};

struct Run {
  int round = 0;  // from 1; trials of a search have 0
  std::uint64_t seed = 0;
  std::string command;      // as typed
  std::string folder;       // in which the run left everything
  std::string error;        // why it failed; empty: it did not
  int code = 0;             // with which it ended
  bool reused = false;      // an earlier comparison's
  double wall_seconds = 0;  // from start to end of the process

  RunFigures figures;
  std::vector<CurvePoint> curve;
  std::vector<ConsensusPoint> consensus;
  std::vector<double> busy;  // of each worker; one that was lost has -1

  bool ok() const { return error.empty(); }
};

// Fills in the figures and curves of a run that ended well from result.json and metrics.jsonl in
// its folder. At most 400 points of each curve, evenly. Where they cannot be read it has failed.
void read_results(Run& run, double summed_speed);

// The evaluation that a running run has made last, from metrics.jsonl; its accuracy as a fraction.
std::optional<double> latest_accuracy(const std::filesystem::path& folder);

// Accuracy after so many samples, on the line between two evaluations; none outside of the curve.
std::optional<double> accuracy_at(const std::vector<CurvePoint>& curve, double samples);

nlohmann::json to_json(const Run& run);

}  // namespace skein::compare
