// Where models of the virtual cluster compute.
#pragma once

#include <memory>

#include "cuda/cuda.h"
#include "torch/torch_stream.h"
#include "train/compute.h"

namespace skein {

// The host, or a device with one queue for everything: torch's work, as long as this lives, and
// whatever others put there. Of the thread that makes it.
struct Place {
  // See Compute; `options` outlive this.
  Place(const TrainOptions& options, int local_rank)
      : compute(options, local_rank),
        queue(compute.on_gpu() ? make_cuda_queue(compute.device().index()) : nullptr),
        torch_on_queue(queue.get()) {}

  Compute compute;
  std::unique_ptr<Queue> queue;  // null on the host
  TorchOnQueue torch_on_queue;
};

}  // namespace skein
