#include "programs/resuming.h"

namespace skein::testing {
namespace {

void train(Trial& trial, const OptimizerSpec& optimizer) {
  Scrambled net;
  Distributed run = trial.start(*net, optimizer);
  some_steps(trial, net, run, 0, 10);
  trial.finish(run);
}

void scrambled(Trial& trial) { train(trial, sgd(0.05).momentum(0.9)); }

void scrambled_as_registered(Trial& trial) {
  trial.strategy.set("reorder", "false");
  scrambled(trial);
}

// Groups are ranges of the arena, and the whole norm is a sum over it.
void scrambled_groups(Trial& trial) {
  train(trial, adamw(0.001).weight_decay(0.1).no_decay_1d().clip(0.5));
}

void scrambled_torch_adam(Trial& trial) {
  Scrambled net;
  Distributed run = trial.watched(distribute(
      trial.world, *net,
      [](std::vector<torch::Tensor> parameters) -> std::unique_ptr<torch::optim::Optimizer> {
        return std::make_unique<torch::optim::Adam>(parameters);
      },
      0.001, trial.strategy));
  some_steps(trial, net, run, 0, 10);
  trial.finish(run);
}

void resuming(Trial& trial) { resumes_bit_for_bit<Scrambled>(trial, "resuming"); }

}  // namespace

Cases order_cases() {
  return {{"scrambled", scrambled},
          {"scrambled_as_registered", scrambled_as_registered},
          {"scrambled_groups", scrambled_groups},
          {"scrambled_torch_adam", scrambled_torch_adam},
          {"resuming", resuming}};
}

}  // namespace skein::testing
