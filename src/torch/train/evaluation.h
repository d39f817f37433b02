// How good the model is now.
#pragma once

#include "data/dataset.h"
#include "models/model.h"
#include "torch/distributed_impl.h"

namespace skein {

struct Evaluation {
  double loss = 0;
  double accuracy = 0;
};

// Of the model as it should be saved, on `test`, shared among the workers; every worker gets the
// same result. Training goes on afterwards as if nothing had happened: where workers have models
// or batch-norm statistics of their own, these are averaged for the evaluation only.
Evaluation evaluate(Distributed::Impl& run, Model& model, const Dataset& test);

}  // namespace skein
