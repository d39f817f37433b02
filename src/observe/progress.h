// How a run is going, for the person who waits: a bar on a terminal, a line now and then elsewhere.
#pragma once

#include <cstdint>
#include <cstdio>
#include <string>

#include "core/clock.h"

namespace skein {

struct ProgressFigures {
  std::int64_t samples = 0, total = 0;  // a run may do a few more than it was asked for
  std::int64_t steps = 0;
  double loss = 0;
  double learning_rate = 0;
  double accuracy = -1;  // of the last evaluation; negative: none yet
};

// Writes to `out`. Quiet: writes nothing.
class ProgressBar {
 public:
  // `log_every`: steps between two plain lines; 0: one every few seconds.
  ProgressBar(const Clock& clock, std::FILE* out, bool quiet, std::int64_t log_every);

  // Shows how the run stands, if it is time to.
  void update(const ProgressFigures& figures);

  // A line that stays, above the bar.
  void say(const std::string& line);

  // Shows how the run stands at its end.
  void finish(const ProgressFigures& figures);

 private:
  void show(const ProgressFigures& figures);
  std::string line(const ProgressFigures& figures, double rate) const;
  std::string bar(const ProgressFigures& figures, double rate) const;
  void clear();

  const Clock& clock_;
  std::FILE* out_;
  bool quiet_;
  bool terminal_;
  std::int64_t log_every_;
  Time started_{};
  Time last_{};
  std::int64_t first_samples_ = -1;
  bool drawn_ = false;
};

}  // namespace skein
