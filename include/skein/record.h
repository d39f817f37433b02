// How a run is going, as numbers. No torch here.
#pragma once

#include <cstdint>
#include <limits>
#include <map>
#include <string>

namespace skein {

// What Distributed::on_record() shows: this worker's view of the steps since the last record. NaN
// stands for what is not known.
struct Record {
  // What stands for a figure that is not known.
  static constexpr double kUnknown = std::numeric_limits<double>::quiet_NaN();

  std::int64_t step = 0;     // updates made so far
  std::int64_t samples = 0;  // trained on so far, by all workers
  double seconds = 0;        // since on_record() was called

  double loss = kUnknown;                // mean of what this worker has reported
  double samples_per_second = kUnknown;  // of all workers
  double step_ms = kUnknown;             // from update to update
  double exposed_comm_ms =
      kUnknown;                     // of a step: this worker waited for others and computed nothing
  double learning_rate = kUnknown;  // of the next update
  double consensus = kUnknown;      // mean squared distance of the workers' models from their mean

  // What was reported by name (means), and what the strategy says of its last step.
  std::map<std::string, double> more = {};

  // One line of JSON, without its end, with the keys of `skein train`'s metrics.jsonl; what is not
  // known is left out.
  std::string json() const;
};

}  // namespace skein
