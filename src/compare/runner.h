// Makes the runs of a comparison, one after the other and interleaved: A B C A B C.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "compare/comparison.h"
#include "launch/signals.h"

namespace skein::compare {

// What is to be run.
struct PlannedRow {
  Job job;             // of the entry, with what all share
  std::string folder;  // below `out`
  double lr = 0;       // that the entry has, given or not
};

struct Plan {
  std::string program;   // to be started
  std::string shown_as;  // in commands that people read: "skein", or a path to it
  std::filesystem::path out;
  bool reuse = false;     // what an earlier comparison has run by the same command
  bool timelines = true;  // trace the first round
  bool watched = false;   // each run keeps what the live page shows
  std::vector<SearchAxis> axes;
  std::int64_t search_samples = 0;
  JudgedBy judged_by = JudgedBy::accuracy;
  std::vector<PlannedRow> rows;  // as the comparison's
};

// The arguments of a run: of `round` from 1, or of trial `number` where round is 0.
std::vector<std::string> run_arguments(const Plan& plan, const Comparison& comparison,
                                       std::size_t row, int round, const Job& trial = {},
                                       int number = 0);

struct RunnerEvents {
  // Before each run: which it is of how many, what it is called, and where it will write.
  std::function<void(int number, int of, const std::string& label, const std::string& folder)>
      begin;
  // While it runs: since when, and where it writes.
  std::function<void(double seconds, const std::string& folder)> tick;
  // After each: the comparison has it. Trials have round 0.
  std::function<void(const Row& row, const Run& run)> end;
};

// Fills in the comparison's rows. Returns the signal by which it was stopped, or 0 when all runs
// were made; the run that was stopped is left out. A run that fails is one with an error.
int run_all(const Plan& plan, Comparison& comparison, SignalQueue& signals,
            const RunnerEvents& events);

}  // namespace skein::compare
