// How a run is going, for the person who waits: a bar on a terminal, a line now and then elsewhere.
// No torch here.
#pragma once

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <string>

#include "skein/record.h"

namespace skein {

class Clock;

// How far a run has come.
struct ProgressFigures {
  std::int64_t samples = 0;  // trained on; a run may do a few more than it was asked for
  std::int64_t total = 0;    // samples that it was asked for
  std::int64_t steps = 0;    // updates made
  double loss = 0;           // NaN: not shown
  double learning_rate = 0;  // of the next update
  double accuracy = -1;      // of the last evaluation; negative: none yet
};

// Writes to `out`, which must outlive it:
//   skein::ProgressBar bar(total_samples, world.rank() == 0);
//   run.on_record(1, [&](const skein::Record& record) { bar.update(record); });
// Not thread-safe.
class ProgressBar {
 public:
  // Where not `shown` it writes nothing, as on all ranks but one.
  explicit ProgressBar(std::int64_t total_samples, bool shown = true, std::FILE* out = stderr);

  // Internal: on another clock, which must outlive it. `log_every`: steps between two plain lines;
  // 0: one every few seconds.
  ProgressBar(const Clock& clock, std::FILE* out, bool quiet, std::int64_t log_every);

  // Shows how the run stands, if it is time to.
  void update(const ProgressFigures& figures);

  // The same by a record, whose loss is smoothed.
  void update(const Record& record);

  // A line that stays, above the bar.
  void say(const std::string& line);

  // Shows how the run stands at its end.
  void finish(const ProgressFigures& figures);

  // The same as the last record said.
  void finish() { finish(last_figures_); }

 private:
  void show(const ProgressFigures& figures);
  std::string line(const ProgressFigures& figures, double rate) const;
  std::string bar(const ProgressFigures& figures, double rate) const;
  void clear();

  std::shared_ptr<const Clock> clock_;
  std::FILE* out_;
  bool quiet_;
  bool terminal_;
  std::int64_t log_every_;
  std::chrono::nanoseconds started_{}, last_{};  // on the clock
  std::int64_t first_samples_ = -1;
  bool drawn_ = false;
  ProgressFigures last_figures_;
};

}  // namespace skein
