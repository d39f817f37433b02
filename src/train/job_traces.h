// What a job shows of when its workers did what: --trace, and the live page's timelines.
#pragma once

#include <memory>
#include <string>

#include "observe/timeline_file.h"
#include "observe/trace_fan.h"
#include "observe/trace_file.h"
#include "skein/world.h"
#include "torch/train_access.h"
#include "train/compute.h"
#include "train/options.h"

namespace skein {

// Outlives the run that writes to it.
class JobTraces {
 public:
  // All workers make one. A trace may go to a pipe or a device, which may be one on the leader's
  // host only; but all agree on where their parts of it go: beside it, or to the run's folder, or
  // to that of temporary files, which each host has for itself. ConfigError where several hosts
  // have no folder for that.
  JobTraces(World& world, const TrainOptions& options, int local_rank);

  // When the folder is this run's: rank 0 may have removed another's from it. All workers call it.
  void start(TrainAccess run, const Compute& compute);

  bool active() const { return !all_.empty(); }
  void step_done(std::int64_t steps, Time now) {
    if (timeline_) timeline_->step_done(steps, now);
  }

  // Writes the file. All workers call it.
  void finish(const std::string& run_id);

 private:
  World& world_;
  const TrainOptions& options_;
  bool beside_ = true;  // parts are written beside the trace
  std::unique_ptr<TraceRecorder> recorder_;
  std::unique_ptr<TimelineWriter> timeline_;
  TraceFan all_;
};

}  // namespace skein
