#include "programs/trial.h"
#include "torch/train/checkpoint.h"

namespace skein::testing {
namespace {

void some_steps(Trial& trial, Scrambled& net, Distributed& run, int from, int to) {
  for (int step = from; step < to; ++step) {
    const auto loss = trial.loss(net(trial.inputs(step)), step);
    trial.see(loss);
    loss.backward();
    run.step(trial.rows());
  }
}

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

// A run that goes on from a checkpoint has the bits of one that was not stopped, from its first
// step on.
void resuming(Trial& trial) {
  Scrambled net;
  Distributed run = trial.start(*net);
  some_steps(trial, net, run, 0, 4);
  const std::string folder = trial.folder + "/resuming." + trial.strategy.name;
  save_checkpoint(folder, run.impl(), {run.impl().worker().progress, {}, {}, {}}, 1);
  some_steps(trial, net, run, 4, 8);

  Scrambled again;
  Distributed resumed = trial.start(*again);
  load_checkpoint(newest_checkpoint(folder), resumed.impl(), {});
  some_steps(trial, again, resumed, 4, 8);
  trial.finish(resumed);
  run.flush();
  for (const auto& each : net->named_parameters())
    if (!torch::equal(each.value(), again->named_parameters()[each.key()]))
      throw Error("'" + each.key() + "' differs after the run was resumed");
}

}  // namespace

Cases order_cases() {
  return {{"scrambled", scrambled},
          {"scrambled_as_registered", scrambled_as_registered},
          {"scrambled_groups", scrambled_groups},
          {"scrambled_torch_adam", scrambled_torch_adam},
          {"resuming", resuming}};
}

}  // namespace skein::testing
