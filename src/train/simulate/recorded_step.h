// A step on a device that is the same every time but for its samples, recorded once.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>

#include "torch/torch_graph.h"
#include "train/simulate/samples.h"

namespace skein {

// Steps of one replica, of which each batch is a selection of samples that the device holds.
class RecordedStep {
 public:
  // TorchGraphs::record().
  using Record =
      std::function<std::unique_ptr<TorchGraphs::Graph>(const std::function<void()>& work)>;

  // `step` puts everything on torch's current stream, reads and writes the same memory every time
  // but for the batch, and waits for nothing. `samples` outlives this.
  RecordedStep(Record record, const Samples& samples, std::function<void(const Batch&)> step);

  // Makes a step with these samples. The first ones are made as they are; then one is recorded, for
  // as many samples as it has. Steps with another number of samples are made as they are.
  void run(std::span<const std::uint32_t> indices);

 private:
  Record record_;
  const Samples& samples_;
  std::function<void(const Batch&)> step_;
  int made_ = 0;           // as they are
  torch::Tensor numbers_;  // of the samples of a recorded step
  std::unique_ptr<TorchGraphs::Graph> graph_;
};

}  // namespace skein
