// What a run says of itself besides its records. No torch here.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

namespace skein {

// What is true of a run because of its strategy.
struct RunTraits {
  bool lockstep = true;          // all workers make each step together and share its batch
  bool equal_replicas = true;    // all workers' models have the same bits after every update
  bool survives_losses = false;  // the run goes on for the others when a worker is lost
};

// What a worker has done since the run began.
struct Totals {
  std::chrono::nanoseconds waiting{0};   // in steps and reads, for others: it computed nothing
  std::chrono::nanoseconds updating{0};  // updates that were made while it waited
  std::uint64_t bytes_sent = 0;          // to others, by all runs and calls of its world
  std::int64_t parameters = 0;           // numbers in the model that are trained
  int reordered = 0;  // parameters that lie in the order of their use and not of registration
};

// What a strategy says of the whole run, on one worker.
struct StrategyReport {
  std::string figures;  // one JSON object
  std::string summary;  // lines for a person; empty: nothing
};

}  // namespace skein
