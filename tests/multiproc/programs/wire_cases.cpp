#include "programs/trial.h"
#include "torch/train/checkpoint.h"

namespace skein::testing {
namespace {

void some_steps(Trial& trial, Plain& net, Distributed& run, int from, int to) {
  for (int step = from; step < to; ++step) {
    run.expect(trial.rows());
    const auto loss = trial.loss(net(trial.inputs(step)), step);
    trial.see(loss);
    loss.backward();
    run.step(trial.rows());
  }
}

// As the case "momentum", which is float32.
void half(Trial& trial) {
  trial.strategy.set("wire", "bf16");
  Plain net;
  Distributed run = trial.start(*net);
  some_steps(trial, net, run, 0, 10);
  trial.finish(run);
}

// Evaluating, saving and looking in between changes nothing.
void half_evaluated(Trial& trial) {
  trial.strategy.set("wire", "bf16");
  Plain net;
  Distributed run = trial.start(*net);
  for (int step = 0; step < 10; ++step) {
    some_steps(trial, net, run, step, step + 1);
    if (step % 3 == 0) run.flush();
    if (step % 3 == 1) run.save(trial.folder + "/half_evaluated." + trial.strategy.name);
    if (step % 3 == 2) run.impl().verify_replicas();
    const torch::NoGradGuard no_grad;
    trial.see(net(trial.inputs(50)));
  }
  trial.finish(run);
}

// What is saved is exact: a run that goes on from it has the bits of one that was not stopped.
void half_resumed(Trial& trial) {
  trial.strategy.set("wire", "bf16");
  Plain net;
  Distributed run = trial.start(*net);
  some_steps(trial, net, run, 0, 4);
  const std::string folder = trial.folder + "/half_resumed." + trial.strategy.name;
  save_checkpoint(folder, run.impl(), {run.impl().worker().progress, {}, {}, {}}, 1);
  some_steps(trial, net, run, 4, 8);

  Plain again;
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

Cases wire_cases() {
  return {{"half", half}, {"half_evaluated", half_evaluated}, {"half_resumed", half_resumed}};
}

}  // namespace skein::testing
