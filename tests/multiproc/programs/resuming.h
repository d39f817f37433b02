// Steps of a trial, and what a checkpoint must be good for.
#pragma once

#include <string>

#include "programs/trial.h"
#include "skein/torch.h"

namespace skein::testing {

template <typename Net>
void some_steps(Trial& trial, Net& net, Distributed& run, int from, int to) {
  for (int step = from; step < to; ++step) {
    run.expect(trial.rows());
    const auto loss = trial.loss(net(trial.inputs(step)), step);
    trial.see(loss);
    loss.backward();
    run.step(trial.rows());
  }
}

// A run that goes on from a checkpoint has the bits of one that was not stopped, from its first
// step on.
template <typename Net>
void resumes_bit_for_bit(Trial& trial, const std::string& name) {
  Net net;
  Distributed run = trial.start(*net);
  some_steps(trial, net, run, 0, 4);
  const std::string folder = trial.folder + "/" + name + "." + trial.strategy.name;
  run.save_checkpoint(folder, {{"case", name}});
  some_steps(trial, net, run, 4, 8);

  Net again;
  Distributed resumed = trial.start(*again);
  run.wait_for_checkpoint();
  if (resumed.resume(folder).text("case") != name) throw Error(folder + ": not resumed");
  some_steps(trial, again, resumed, 4, 8);
  trial.finish(resumed);
  run.flush();
  for (const auto& each : net->named_parameters())
    if (!torch::equal(each.value(), again->named_parameters()[each.key()]))
      throw Error("'" + each.key() + "' differs after the run was resumed");
}

}  // namespace skein::testing
