// What a job writes of each step: from the records that any program can have of its run.
#pragma once

#include <cstdint>
#include <deque>

#include "core/clock.h"
#include "skein/torch.h"
#include "train/job_folder.h"

namespace skein {

// Its seconds and iteration_ms are of training alone, without the evaluations and checkpoints in
// between, which the job knows and the run does not.
class StepLog {
 public:
  // Looks at the records of `run` from now on, which makes no step after this has gone.
  StepLog(Distributed& run, JobFolder& folder);
  StepLog(const StepLog&) = delete;
  StepLog& operator=(const StepLog&) = delete;

  // Whether the model has been updated since the last step that was logged: its record comes.
  bool is_due() const { return run_.steps() > steps_; }

  // The step whose record comes has ended so far into training, that long after the one before.
  // `reported`: this worker had samples, so that there is a loss. Throws Error for one that is not
  // finite, here or in a later call of the run.
  void step_over(double seconds, double iteration_ms, bool reported);

  // Smoothed over steps; -1 before the first.
  double loss() const { return smooth_loss_; }

 private:
  struct Timing {
    double seconds, iteration_ms;
    bool reported;
  };

  void write_those_known();
  void write(Record record, const Timing& timing);

  Distributed& run_;
  JobFolder& folder_;
  std::int64_t steps_;  // at the last step that was logged
  std::deque<Record> records_;
  std::deque<Timing> timings_;  // on a GPU ahead of records
  double last_loss_ = 0, smooth_loss_ = -1;
  double shown_samples_, shown_seconds_ = 0;  // at the last step that TensorBoard has
};

}  // namespace skein
