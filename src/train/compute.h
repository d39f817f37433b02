// Where and how a worker computes.
#pragma once

#include <torch/torch.h>

#include <cstdint>
#include <string>

#include "data/upload.h"
#include "models/model.h"
#include "torch/generator.h"
#include "train/options.h"
#include "train/precision.h"

namespace skein {

class Compute {
 public:
  // The device that `options` ask for, for worker `local_rank` of its host; it becomes this
  // thread's. ConfigError, which says why, where it is not there. Sets what torch has for the whole
  // process: deterministic algorithms, and whether float32 products may be rounded to TF32.
  Compute(const TrainOptions& options, int local_rank);

  torch::Device device() const { return device_; }
  bool on_gpu() const { return !device_.is_cpu(); }

  // Moves the model there, and looks whether it has convolutions, which decides how images lie.
  void take(Model& model);

  // How images come to the model: in what order of dimensions in memory.
  bool channels_last() const { return channels_last_; }
  const Upload& upload() const { return upload_; }

  // Put around forward and loss.
  Autocast autocast() const { return Autocast(device_.type(), precision_); }

  // Blocks until all is done that this thread has put on the device.
  void finish() const { finish_stream(device_); }

  // What is taken of the device's memory, by whomever; 0 on the host.
  std::int64_t memory_in_use() const;

 private:
  const TrainOptions& options_;
  torch::Device device_ = torch::kCPU;
  Precision precision_;
  bool channels_last_ = false;
  Upload upload_;
};

}  // namespace skein
