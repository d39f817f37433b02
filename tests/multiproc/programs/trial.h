// One training of a case: what it runs with and what it has seen.
#pragma once

#include <torch/torch.h>

#include <atomic>
#include <map>
#include <string>
#include <vector>

#include "programs/nets.h"
#include "skein/torch.h"
#include "torch/distributed_impl.h"

namespace skein::testing {

inline constexpr std::int64_t kGlobalBatch = 16;

struct Trial {
  World& world;
  StrategySpec strategy;
  std::string folder;  // for files of the case's own

  std::vector<float> seen{};    // must not depend on the strategy
  std::vector<double> state{};  // elements of the optimizer's state on each rank
  double plane = 0;             // elements of the whole model
  std::atomic<int> waits = 0;   // reads that had to wait for an update
  int buckets = 0;
  int reordered = 0;           // slots that lie elsewhere than they were registered
  std::size_t parameters = 0;  // numbers at the end of `seen`

  // This rank's part of the global batch.
  std::int64_t rows() const { return kGlobalBatch / world.size(); }
  torch::Tensor inputs(int step) const {
    const auto all = torch::sin(torch::arange(kGlobalBatch * kInputs, torch::kFloat32) * 0.37 +
                                static_cast<double>(step));
    return all.reshape({kGlobalBatch, kInputs}).narrow(0, world.rank() * rows(), rows());
  }
  torch::Tensor targets(int step) const {
    return torch::remainder(torch::arange(kGlobalBatch) * 3 + step, kClasses)
        .narrow(0, world.rank() * rows(), rows());
  }
  torch::Tensor loss(const torch::Tensor& scores, int step) const {
    return torch::nn::functional::cross_entropy(scores, targets(step));
  }

  void see(const torch::Tensor& tensor) {
    const auto copy = tensor.detach().clone().contiguous();
    seen.insert(seen.end(), copy.data_ptr<float>(), copy.data_ptr<float>() + copy.numel());
  }

  Distributed start(torch::nn::Module& module, const OptimizerSpec& optimizer) {
    return watched(distribute(world, module, optimizer, strategy));
  }
  Distributed start(torch::nn::Module& module) { return start(module, sgd(0.05).momentum(0.9)); }

  Distributed watched(Distributed run) {
    run.impl().after_wait = [this](std::string_view what, Duration waited) {
      if (what == "read" && waited > std::chrono::microseconds(100)) ++waits;
    };
    return run;
  }

  // Sees the final parameters, which are the same on all workers.
  void finish(Distributed& run) {
    run.impl().replicas().verify();
    run.flush();
    const std::size_t before = seen.size();
    for (const torch::Tensor& each : run.impl().module().parameters()) see(each);
    parameters = seen.size() - before;
    std::vector<double> own(static_cast<std::size_t>(world.size()));
    for (const auto& [name, vector] : run.impl().optimizer().state())
      own[static_cast<std::size_t>(world.rank())] += static_cast<double>(vector.count);
    state = world.sum(own);
    plane = static_cast<double>(run.impl().binding().arena().size());
    buckets = run.impl().strategy().plan().count();
    reordered = run.impl().binding().reordered();
  }
};

using Cases = std::map<std::string, void (*)(Trial&)>;
Cases training_cases();  // awkward modules and steps, every optimizer
Cases order_cases();     // modules that do not use parameters in the order of registration
Cases wire_cases();      // messages in bfloat16
Cases reading_cases();   // the user touches parameters and gradients between steps

}  // namespace skein::testing
