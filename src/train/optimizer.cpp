#include "train/optimizer.h"

#include <utility>

#include "optimize/adamw.h"
#include "optimize/sgd.h"

namespace skein {

std::unique_ptr<Optimizer> make_optimizer(const TrainOptions& job, std::size_t size,
                                          Allocate allocate) {
  const std::vector<GroupRule> one_rule;
  if (job.optimizer == "adamw")
    return std::make_unique<Adamw>(size, AdamwOptions{.weight_decay = job.weight_decay}, one_rule,
                                   std::move(allocate));
  return std::make_unique<Sgd>(size, SgdOptions{job.momentum, job.weight_decay, job.nesterov},
                               one_rule, std::move(allocate));
}

}  // namespace skein
