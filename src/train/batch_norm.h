// Batch-norm statistics of the present weights, computed from scratch.
#pragma once

#include "data/dataset.h"
#include "models/model.h"
#include "torch/train_access.h"
#include "train/compute.h"

namespace skein {

bool has_batch_norm(const Model& model);

struct FreshStatistics {
  std::int64_t batches = 1;  // of each worker
  std::int64_t batch = 1;    // samples of one
  std::uint64_t seed = 1;
};

// The module's buffers as they are after so many batches of `train` in training mode and without
// gradients, all batches weighing the same, averaged over the workers. Copies: the live buffers and
// the random generator stay as they are. Replicas are equal. All workers call it.
std::vector<NamedTensor> fresh_buffers(Distributed& run, Model& model, const Compute& compute,
                                       const Dataset& train, const FreshStatistics& how);

}  // namespace skein
