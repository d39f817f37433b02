#include "programs/resuming.h"

namespace skein::testing {
namespace {

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
    if (step % 3 == 2) run.impl().replicas().verify();
    const torch::NoGradGuard no_grad;
    trial.see(net(trial.inputs(50)));
  }
  trial.finish(run);
}

// What is saved is exact: a run that goes on from it has the bits of one that was not stopped.
void half_resumed(Trial& trial) {
  trial.strategy.set("wire", "bf16");
  resumes_bit_for_bit<Plain>(trial, "half_resumed");
}

}  // namespace

Cases wire_cases() {
  return {{"half", half}, {"half_evaluated", half_evaluated}, {"half_resumed", half_resumed}};
}

}  // namespace skein::testing
