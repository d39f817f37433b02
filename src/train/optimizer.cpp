#include "train/optimizer.h"

#include "optimize/adamw.h"
#include "optimize/sgd.h"

namespace skein {

std::unique_ptr<Optimizer> make_optimizer(const TrainOptions& job, std::size_t size) {
  if (job.optimizer == "adamw")
    return std::make_unique<Adamw>(size, AdamwOptions{.weight_decay = job.weight_decay});
  return std::make_unique<Sgd>(size, SgdOptions{job.momentum, job.weight_decay, job.nesterov});
}

}  // namespace skein
