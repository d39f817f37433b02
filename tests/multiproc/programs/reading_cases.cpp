#include <thread>

#include "programs/trial.h"
#include "torch/safetensors.h"

namespace skein::testing {
namespace {

// Right after a step, without flush(): first what arrives last.
void evaluation(Trial& trial) {
  Plain net;
  Distributed run = trial.start(*net);
  const auto held_out = trial.inputs(1000);
  for (int step = 0; step < 9; ++step) {
    trial.loss(net(trial.inputs(step)), step).backward();
    run.step(trial.rows());
    if (step % 3 == 0) {
      const torch::NoGradGuard no_grad;
      trial.see(net(held_out));
    } else if (step % 3 == 1) {
      const c10::InferenceMode inference;
      trial.see(net(held_out));
    } else {
      trial.see(net(held_out));
    }
  }
  trial.finish(run);
}

// The model that save() writes right after a step is that step's.
void saving(Trial& trial) {
  Plain net;
  Distributed run = trial.start(*net);
  const std::string path = trial.folder + "/saved." + trial.strategy.name;
  for (int step = 0; step < 4; ++step) {
    trial.loss(net(trial.inputs(step)), step).backward();
    run.step(trial.rows());
    run.save(path);
    for (const NamedTensor& each : read_safetensors(path).tensors) trial.see(each.tensor);
    trial.world.barrier();
  }
  trial.finish(run);
}

// Reads that are no module's forward, from this thread and from another. What arrives last first.
void other_reads(Trial& trial) {
  Plain net;
  Distributed run = trial.start(*net);
  for (int step = 0; step < 10; ++step) {
    trial.loss(net(trial.inputs(step)), step).backward();
    run.step(trial.rows());
    const auto see_norms = [&] {
      auto parameters = net->parameters();
      for (auto each = parameters.rbegin(); each != parameters.rend(); ++each)
        trial.see(each->norm());
    };
    if (step % 2 == 0)
      see_norms();
    else
      std::thread(see_norms).join();
  }
  trial.finish(run);
}

// Two threads read while the parameters of the step come in.
void reads_of_two_threads(Trial& trial) {
  Plain net;
  Distributed run = trial.start(*net);
  for (int step = 0; step < 10; ++step) {
    trial.loss(net(trial.inputs(step)), step).backward();
    run.step(trial.rows());
    torch::Tensor norm;
    std::thread other([&] { norm = net->third->weight.norm(); });
    trial.see(net->first->weight.norm());
    other.join();
    trial.see(norm);
  }
  trial.finish(run);
}

// A loop that still clears gradients itself, in every way torch has.
void cleared_gradients(Trial& trial) {
  Plain net;
  Distributed run = trial.start(*net);
  for (int step = 0; step < 9; ++step) {
    if (step % 3 == 0) net->zero_grad();
    if (step % 3 == 1) net->zero_grad(/*set_to_none=*/true);
    if (step % 3 == 2)
      for (torch::Tensor& each : net->parameters()) each.mutable_grad().fill_(0);
    trial.loss(net(trial.inputs(step)), step).backward();
    run.step(trial.rows());
  }
  trial.finish(run);
}

// Forward runs before a step and its backward after: the first gradient may come before any read.
void late_backward(Trial& trial) {
  Plain net;
  Distributed run = trial.start(*net);
  auto loss = trial.loss(net(trial.inputs(0)), 0);
  for (int step = 1; step < 9; ++step) {
    auto next = trial.loss(net(trial.inputs(step)), step);
    loss.backward();
    run.step(trial.rows());
    loss = next;
  }
  trial.finish(run);
}

// New values for a parameter right after a step stay. A step follows each set_data(): flush() would
// refuse a tensor that lies elsewhere.
void written_parameters(Trial& trial) {
  Plain net;
  Distributed run = trial.start(*net);
  for (int step = 0; step < 8; ++step) {
    trial.loss(net(trial.inputs(step)), step).backward();
    run.step(trial.rows());
    const torch::NoGradGuard no_grad;
    if (step % 3 == 0) net->third->weight.mul_(0.5);
    if (step % 3 == 1) net->third->weight.fill_(0.01);
    if (step % 3 == 2) net->third->weight.set_data(torch::full({kWidth, kWidth}, 0.02));
  }
  trial.finish(run);
}

// The module keeps the last update when its run is over.
void the_end(Trial& trial) {
  Plain net;
  {
    Distributed run = trial.start(*net);
    for (int step = 0; step < 3; ++step) {
      trial.loss(net(trial.inputs(step)), step).backward();
      run.step(trial.rows());
    }
  }
  for (const torch::Tensor& each : net->parameters()) trial.see(each);
  trial.world.barrier();
}

// The end of one run takes nothing from another in the same world, whose update is on its way.
void one_of_two_ends(Trial& trial) {
  Plain stays, goes;
  Distributed run = trial.start(*stays);
  {
    Distributed other = trial.start(*goes);
    for (int step = 0; step < 3; ++step) {
      trial.loss(goes(trial.inputs(step)), step).backward();
      other.step(trial.rows());
      trial.loss(stays(trial.inputs(step + 50)), step).backward();
      run.step(trial.rows());
    }
  }
  trial.see(stays(trial.inputs(7)));
  for (const torch::Tensor& each : goes->parameters()) trial.see(each);
  trial.finish(run);
}

}  // namespace

Cases reading_cases() {
  return {{"evaluation", evaluation},
          {"saving", saving},
          {"other_reads", other_reads},
          {"reads_of_two_threads", reads_of_two_threads},
          {"cleared_gradients", cleared_gradients},
          {"late_backward", late_backward},
          {"written_parameters", written_parameters},
          {"the_end", the_end},
          {"one_of_two_ends", one_of_two_ends}};
}

}  // namespace skein::testing
