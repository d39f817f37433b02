#include "programs/trial.h"

namespace skein::testing {
namespace {

void train(Trial& trial, const OptimizerSpec& optimizer, int steps) {
  Plain net;
  Distributed run = trial.start(*net, optimizer);
  for (int step = 0; step < steps; ++step) {
    const auto loss = trial.loss(net(trial.inputs(step)), step);
    trial.see(loss);
    loss.backward();
    run.step(trial.rows());
  }
  trial.finish(run);
}

void momentum(Trial& trial) { train(trial, sgd(0.05).momentum(0.9), 10); }

void nesterov(Trial& trial) {
  train(trial,
        sgd(0.05).momentum(0.9).nesterov().weight_decay(0.01).no_decay_1d().clip(0.2).schedule(
            "cosine:warmup=48", 10 * kGlobalBatch),
        10);
}

void adamw_groups(Trial& trial) {
  train(trial,
        adamw(0.001)
            .weight_decay(0.1)
            .no_decay_1d()
            .group(group([](const ParameterInfo& each) {
                     return each.shape.size() == 2;
                   }).learning_rate(0.003))
            .schedule("step:every=16,factor=0.7"),
        10);
}

void two_hundred_steps(Trial& trial) {
  train(trial,
        adamw(0.002).weight_decay(0.01).no_decay_1d().clip(0.5).schedule("cosine:warmup=160",
                                                                         200 * kGlobalBatch),
        200);
}

void two_hundred_of_sgd(Trial& trial) { train(trial, sgd(0.05).momentum(0.9), 200); }

void torch_adam(Trial& trial) {
  Plain net;
  Distributed run = trial.watched(distribute(
      trial.world, *net,
      [](std::vector<torch::Tensor> parameters) -> std::unique_ptr<torch::optim::Optimizer> {
        return std::make_unique<torch::optim::Adam>(parameters);
      },
      0.001, trial.strategy));
  for (int step = 0; step < 10; ++step) {
    trial.loss(net(trial.inputs(step)), step).backward();
    run.step(trial.rows());
  }
  trial.finish(run);
}

template <typename Net, int steps>
void some_steps(Trial& trial) {
  Net net;
  Distributed run = trial.start(*net);
  for (int step = 0; step < steps; ++step) {
    const auto loss = trial.loss(net(trial.inputs(step)), step);
    trial.see(loss);
    loss.backward();
    run.step(trial.rows());
  }
  trial.finish(run);
}

// A module that sees two batches before one backward, as a discriminator does.
void two_forwards(Trial& trial) {
  Plain net;
  Distributed run = trial.start(*net);
  for (int step = 0; step < 10; ++step) {
    const auto real = net(trial.inputs(step)), fake = net(-trial.inputs(step));
    (trial.loss(real, step) + trial.loss(fake, step + 1)).backward();
    run.step(trial.rows());
  }
  trial.finish(run);
}

// Two modules in one world that are trained in turns; one learns from what the other makes.
void two_models(Trial& trial) {
  Plain judge, maker;
  Distributed judging = trial.start(*judge), making = trial.start(*maker);
  for (int step = 0; step < 8; ++step) {
    const auto x = trial.inputs(step);
    const auto made = maker(x).detach().repeat({1, 4}).narrow(1, 0, kInputs);
    (trial.loss(judge(x), step) + trial.loss(judge(made), step + 1)).backward();
    judging.step(trial.rows());
    trial.loss(maker(x), step).backward();
    making.step(trial.rows());
  }
  trial.finish(judging);
  trial.finish(making);
}

void accumulation(Trial& trial) {
  Plain net;
  Distributed run = trial.start(*net, sgd(0.05).momentum(0.9).clip(0.3));
  run.accumulate(3);
  for (int step = 0; step < 200; ++step) {
    for (int pass = 0; pass < 3; ++pass)
      (trial.loss(net(trial.inputs(3 * step + pass)), step) / 3).backward();
    run.step(3 * trial.rows());
  }
  trial.finish(run);
}

// Each rank has a branch that the next one has not, and sometimes nobody has one.
void missing_gradients(Trial& trial) {
  Branchy net;
  Distributed run = trial.start(*net, adamw(0.001).clip(0.5));
  for (int step = 0; step < 12; ++step) {
    const int branch = step % 3 == 2 ? 0 : (trial.world.rank() + step) % 2 == 0 ? 1 : -1;
    trial.loss(net->forward(trial.inputs(step), branch), step).backward();
    run.step(trial.rows());
  }
  trial.finish(run);
}

// Workers with different numbers of samples, one with none.
void uneven_batches(Trial& trial) {
  Plain net;
  Distributed run = trial.start(*net);
  for (int step = 0; step < 8; ++step) {
    const std::int64_t rows = (trial.world.rank() + step) % 2 == 0 ? trial.rows() : step % 3;
    run.expect(rows);
    if (rows > 0) {
      const auto scores = net(trial.inputs(step).narrow(0, 0, rows));
      torch::nn::functional::cross_entropy(scores, trial.targets(step).narrow(0, 0, rows))
          .backward();
    }
    run.step(rows);
  }
  trial.finish(run);
}

// `abs` without its delay is synchronous SGD: whatever the strategy of the trial, it must come to
// what `allreduce` comes to, with micro-batches of different sizes and clipping.
void abs_without_delay(Trial& trial) {
  std::vector<torch::Tensor> ends;
  for (const StrategySpec& strategy :
       {allreduce(), skein::abs_sgd().set("warmup_rounds", "1000000")}) {
    torch::manual_seed(5);
    Plain net;
    Distributed run = distribute(trial.world, *net, sgd(0.05).momentum(0.9).clip(0.3), strategy);
    for (int step = 0; step < 8; ++step) {
      const std::int64_t rows = 1 + (trial.world.rank() + step) % trial.rows();
      run.expect(rows);
      const auto scores = net(trial.inputs(step).narrow(0, 0, rows));
      torch::nn::functional::cross_entropy(scores, trial.targets(step).narrow(0, 0, rows))
          .backward();
      run.step(rows);
    }
    run.impl().replicas().verify();
    std::vector<torch::Tensor> flat;
    for (const auto& each : net->parameters()) flat.push_back(each.detach().reshape({-1}));
    ends.push_back(torch::cat(flat).clone());
  }
  const auto gap = (ends[0] - ends[1]).norm().item<double>() / ends[0].norm().item<double>();
  if (!(gap < 1e-6))
    throw Error("abs without delay differs from allreduce by " + std::to_string(gap));
  trial.see(ends[0]);
}

}  // namespace

Cases training_cases() {
  return {{"momentum", momentum},
          {"nesterov", nesterov},
          {"adamw", adamw_groups},
          {"torch_adam", torch_adam},
          {"two_hundred_steps", two_hundred_steps},
          {"two_hundred_of_sgd", two_hundred_of_sgd},
          {"back_to_front", some_steps<BackToFront, 10>},
          {"tied_weights", some_steps<TiedWeights, 200>},
          {"reused_and_frozen", some_steps<Recurrent, 10>},
          {"two_forwards", two_forwards},
          {"two_models", two_models},
          {"accumulation", accumulation},
          {"missing_gradients", missing_gradients},
          {"uneven_batches", uneven_batches},
          {"abs_without_delay", abs_without_delay}};
}

}  // namespace skein::testing
