// How good the model is now.
#pragma once

#include <functional>
#include <optional>

#include "data/dataset.h"
#include "models/model.h"
#include "torch/train_access.h"
#include "train/compute.h"

namespace skein {

struct Quality {
  double loss = 0;
  double accuracy = 0;
};

// Of the model as it should be saved, on `test`, shared among the workers; every worker gets the
// same result. Training goes on afterwards as if nothing had happened: where workers have models of
// their own these are averaged for the evaluation only, and `buffers` gives the batch-norm
// statistics, the same on all workers, for it. `stop` is asked before every batch: if it says yes
// on any worker, that one computes no more and all of them get nothing.
std::optional<Quality> evaluate(Distributed& run, Model& model, const Compute& compute,
                                const Dataset& test, const TrainAccess::Buffers& buffers,
                                const std::function<bool()>& stop);

}  // namespace skein
