// How good the model is now.
#pragma once

#include <functional>
#include <vector>

#include "data/dataset.h"
#include "models/model.h"
#include "torch/distributed_impl.h"

namespace skein {

struct Evaluation {
  double loss = 0;
  double accuracy = 0;
};

// Of the model as it should be saved, on `test`, shared among the workers; every worker gets the
// same result. Training goes on afterwards as if nothing had happened: where workers have models of
// their own these are averaged for the evaluation only, and `buffers` gives the batch-norm
// statistics, the same on all workers, for it.
Evaluation evaluate(Distributed::Impl& run, Model& model, const Dataset& test,
                    const std::function<std::vector<NamedTensor>()>& buffers);

}  // namespace skein
