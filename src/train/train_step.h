// One step of a job on one worker: its micro-batches, forward and backward.
#pragma once

#include <torch/torch.h>

#include <memory>
#include <string>

#include "data/prefetch.h"
#include "emulate/pacer.h"
#include "models/model.h"
#include "skein/torch.h"
#include "torch/train_access.h"
#include "train/compute.h"
#include "train/job_data.h"
#include "train/options.h"
#include "train/report.h"

namespace skein {

// Refers to all that it is made with. `traced`: spans of loading, forward and backward are wanted.
class TrainStep {
 public:
  TrainStep(Distributed& run, Model& model, const Compute& compute,
            std::shared_ptr<const Dataset> data, const TrainOptions& options, RunFigures& figures);
  ~TrainStep() { access_.set_pace({}); }
  TrainStep(const TrainStep&) = delete;
  TrainStep& operator=(const TrainStep&) = delete;

  void make(const JobData::Step& step, bool traced);

 private:
  void micro_batch(const JobData::Indices& indices, const JobData::Indices* next, double weight);
  torch::Tensor forward(const Batch& batch);  // to the loss

  Distributed& run_;
  TrainAccess access_;
  Model& model_;
  const Compute& compute_;
  RunFigures& figures_;
  SteadyClock clock_;
  Prefetcher prefetcher_;
  Pacer pacer_;
  Duration paced_update_{};  // update time that a micro-batch has made up for
  torch::Tensor loss_;       // of the step that is computed, up to now
  std::string name_;         // of it, in traces
  bool traced_ = false;
};

}  // namespace skein
