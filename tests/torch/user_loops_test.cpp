// Loops that users write, under every strategy there is: they come to their end in time, on all
// workers, with one model that has learnt something.
#include <gtest/gtest.h>
#include <torch/torch.h>
#include <unistd.h>

#include <cmath>
#include <thread>

#include "on_workers.h"
#include "skein/torch.h"
#include "strategy/registry.h"
#include "test_net.h"
#include "torch/distributed_impl.h"
#include "train/precision.h"

namespace skein::user_loops_test {
namespace {

constexpr int kWorkers = 3;
constexpr std::int64_t kInputs = 6, kBatch = 8;

// A worker's model and its own part of the data: points of one line with some noise.
struct Job {
  explicit Job(World& world) : world(world) {
    torch::manual_seed(static_cast<std::uint64_t>(world.rank()) + 7);
    const auto slope = torch::arange(1, kInputs + 1, torch::kFloat32).reshape({kInputs, 1}) / 4;
    inputs = torch::randn({5 * kBatch + 1 + world.rank(), kInputs});  // a short last batch
    targets = inputs.mm(slope) + 0.01 * torch::randn({inputs.size(0), 1});
    torch::manual_seed(static_cast<std::uint64_t>(world.rank()) + 1);
    net = torch::nn::Sequential(torch::nn::Linear(kInputs, 8), torch::nn::Tanh(),
                                torch::nn::Linear(8, 1));
  }

  Distributed start(const StrategySpec& strategy) {
    return distribute(world, *net, sgd(0.02).momentum(0.5), strategy);
  }

  torch::Tensor loss_on(const torch::Tensor& x, const torch::Tensor& y) {
    return torch::nn::functional::mse_loss(net->forward(x), y);
  }
  torch::Tensor loss(int step) {
    const std::int64_t from = step % 5 * kBatch;
    return loss_on(inputs.narrow(0, from, kBatch), targets.narrow(0, from, kBatch));
  }
  double evaluated() {
    const torch::NoGradGuard no_grad;
    return loss_on(inputs, targets).item<double>();
  }

  World& world;
  torch::Tensor inputs, targets;
  torch::nn::Sequential net;
};

// One loop; it leaves the trained model in the job's module.
using Loop = void (*)(Job& job, const StrategySpec& strategy);

// As the README has it: so many steps each, then save.
void fixed_number_of_steps(Job& job, const StrategySpec& strategy) {
  auto run = job.start(strategy);
  for (int step = 0; step < 30; ++step) {
    job.loss(step).backward();
    run.step(kBatch);
  }
  const std::string path = "/tmp/skein-loops-" + std::to_string(::getppid()) + ".safetensors";
  run.save(path);
  EXPECT_EQ(run.samples(), kWorkers * 30 * kBatch);
  if (job.world.rank() == 0) std::remove(path.c_str());
}

void epochs_with_a_short_last_batch(Job& job, const StrategySpec& strategy) {
  auto run = job.start(strategy);
  for (int epoch = 0; epoch < 5; ++epoch) {
    const auto order = torch::randperm(job.inputs.size(0));
    for (const auto& batch : order.split(kBatch)) {
      run.expect(batch.size(0));
      job.loss_on(job.inputs.index_select(0, batch), job.targets.index_select(0, batch)).backward();
      run.step(batch.size(0));
    }
  }
  run.flush();
  EXPECT_EQ(run.samples(), 5 * (kWorkers * (5 * kBatch + 1) + 3));
}

void clipping(Job& job, const StrategySpec& strategy) {
  auto run = job.start(strategy);
  for (int step = 0; step < 30; ++step) {
    job.loss(step).backward();
    torch::nn::utils::clip_grad_norm_(job.net->parameters(), 2.0);
    run.step(kBatch);
  }
  run.flush();
}

void scaling(Job& job, const StrategySpec& strategy) {
  auto run = job.start(strategy);
  for (int step = 0; step < 30; ++step) {
    (job.loss(step) * 64).backward();
    for (auto& each : job.net->parameters()) each.mutable_grad().mul_(1.0 / 64);
    run.step(kBatch);
  }
  run.flush();
}

// Out of habit: step() has cleared the gradients already.
void clearing(Job& job, const StrategySpec& strategy) {
  auto run = job.start(strategy);
  for (int step = 0; step < 30; ++step) {
    job.net->zero_grad(/*set_to_none=*/step % 2 == 0);
    job.loss(step).backward();
    run.step(kBatch);
  }
  run.flush();
}

void clipping_the_average(Job& job, const StrategySpec& strategy) {
  auto run = job.start(strategy);
  int calls = 0;
  run.before_update([&](AveragedGradients& g) {
    ++calls;
    if (std::isfinite(g.norm()))
      g.clip(2.0);
    else
      g.skip();
  });
  for (int step = 0; step < 30; ++step) {
    auto loss = job.loss(step);
    if (step == 17 && job.world.rank() == 2) loss = loss * INFINITY;
    loss.backward();
    run.step(kBatch);
  }
  run.flush();
  EXPECT_GT(calls, 0);
}

// Forward and loss in bfloat16, backward outside, as torch's autocast is meant to be used.
void autocast(Job& job, const StrategySpec& strategy) {
  auto run = job.start(strategy);
  for (int step = 0; step < 30; ++step) {
    const auto loss = [&] {
      const Autocast half(torch::kCPU, Precision::bf16);
      return job.loss(step);
    }();
    loss.backward();
    run.step(kBatch);
  }
  run.flush();
  for (const auto& each : job.net->parameters()) EXPECT_EQ(each.scalar_type(), torch::kFloat32);
}

void accumulation(Job& job, const StrategySpec& strategy) {
  auto run = job.start(strategy);
  run.accumulate(2);
  for (int step = 0; step < 30; ++step) {
    for (int pass = 0; pass < 2; ++pass) (job.loss(2 * step + pass) / 2).backward();
    run.step(2 * kBatch);
  }
  run.flush();
}

void evaluation_in_the_middle(Job& job, const StrategySpec& strategy) {
  auto run = job.start(strategy);
  for (int step = 0; step < 30; ++step) {
    job.loss(step).backward();
    run.step(kBatch);
    if (step % 7 == 3) {
      EXPECT_TRUE(std::isfinite(job.evaluated()));  // whatever model is there
    }
    if (step % 10 == 9) {
      run.flush();
      EXPECT_TRUE(test::same_on_all(job.world, test::flat_parameters(*job.net)));
      const double sum = job.world.sum({job.evaluated()})[0];
      EXPECT_TRUE(std::isfinite(sum));
    }
  }
  run.flush();
}

// Unequal workers until all have done so much together.
void until_enough_samples(Job& job, const StrategySpec& strategy) {
  constexpr std::int64_t kTotal = kWorkers * 30 * kBatch;
  auto run = job.start(strategy);
  int step = 0;
  while (!run.done(kTotal)) {
    std::this_thread::sleep_for(std::chrono::milliseconds(job.world.rank()));
    job.loss(step++).backward();
    run.step(kBatch);
  }
  run.flush();
  EXPECT_GE(run.samples(), kTotal);
  if (run.impl().strategy().lockstep()) {
    EXPECT_EQ(run.samples(), kTotal);
  }
}

// Rank 1 has nothing to do in the first epoch.
void a_worker_without_data_at_first(Job& job, const StrategySpec& strategy) {
  auto run = job.start(strategy);
  for (int step = 0; step < 5 && job.world.rank() != 1; ++step) {
    job.loss(step).backward();
    run.step(kBatch);
  }
  run.flush();
  for (int step = 0; step < 30; ++step) {
    job.loss(step).backward();
    run.step(kBatch);
  }
  run.flush();
  EXPECT_EQ(run.samples(), (kWorkers * 30 + (kWorkers - 1) * 5) * kBatch);
}

// Two runs after each other in one world, the first without a flush.
void one_run_after_the_other(Job& job, const StrategySpec& strategy) {
  {
    auto run = job.start(strategy);
    for (int step = 0; step < 5; ++step) {
      job.loss(step).backward();
      run.step(kBatch);
    }
  }
  fixed_number_of_steps(job, strategy);
}

// As in a GAN: the net's loss goes through another model, which learns from its own loss alone.
void a_loss_through_another_model(Job& job, const StrategySpec& strategy) {
  auto run = job.start(strategy);
  torch::nn::Linear judge(1, 1);
  {
    const torch::NoGradGuard no_grad;
    judge->weight.fill_(1.5F);
    judge->bias.fill_(0);
  }
  auto judged = distribute(job.world, *judge, sgd(0.02), strategy);
  const auto judges_loss = [&](const torch::Tensor& y) {
    return torch::nn::functional::mse_loss(judge->forward(y), y);
  };
  for (int step = 0; step < 30; ++step) {
    const auto x = job.inputs.narrow(0, step % 5 * kBatch, kBatch);
    const auto y = job.targets.narrow(0, step % 5 * kBatch, kBatch);
    judges_loss(y).backward();
    judged.step(kBatch);
    torch::nn::functional::mse_loss(judge->forward(job.net->forward(x)), y)
        .backward({}, {}, false, job.net->parameters());
    run.step(kBatch);
  }
  run.flush();
  judged.flush();
  EXPECT_TRUE(test::same_on_all(job.world, test::flat_parameters(*judge)));
  EXPECT_LT(std::abs(judge->weight.item<float>() - 1), 0.45F);
}

// The same by somebody who forgets that the judge gets gradients, too: all workers are told.
void a_loss_that_reaches_another_model(Job& job, const StrategySpec& strategy) {
  torch::nn::Linear judge(1, 1);
  try {
    auto judged = distribute(job.world, *judge, sgd(0.02), strategy);
    // Whoever leaves by an exception counts as lost there, and this world is needed still.
    if (judged.impl().strategy().survives_losses()) return fixed_number_of_steps(job, strategy);
    judge->forward(job.net->forward(job.inputs)).sum().backward();
    judge->forward(job.targets).sum().backward();
    ADD_FAILURE() << "two backward passes in a step that has one";
  } catch (const ConfigError& error) {
    EXPECT_TRUE(test::contains(error.what(), {"backward pass 2", "inputs"}));
  }
  job.net->zero_grad();
  fixed_number_of_steps(job, strategy);
}

const std::vector<std::pair<const char*, Loop>> kLoops{
    {"a fixed number of steps", fixed_number_of_steps},
    {"epochs with a short last batch", epochs_with_a_short_last_batch},
    {"clipping", clipping},
    {"scaling", scaling},
    {"clearing", clearing},
    {"clipping the average", clipping_the_average},
    {"accumulation", accumulation},
    {"autocast", autocast},
    {"evaluation in the middle", evaluation_in_the_middle},
    {"until enough samples", until_enough_samples},
    {"a worker without data at first", a_worker_without_data_at_first},
    {"one run after the other", one_run_after_the_other},
    {"a loss through another model", a_loss_through_another_model},
    {"a loss that reaches another model", a_loss_that_reaches_another_model}};

class UserLoops : public testing::TestWithParam<std::string> {};

TEST_P(UserLoops, EndInTimeWithOneModelThatHasLearnt) {
  for (const auto& [name, loop] : kLoops) {
    SCOPED_TRACE(name);
    test::on_workers(kWorkers, [loop = loop](World& world) {
      Job job(world);
      const double before = job.evaluated();
      loop(job, StrategySpec(GetParam()));
      EXPECT_TRUE(test::same_on_all(world, test::flat_parameters(*job.net))) << "models differ";
      // Under abs a few updates are made of many samples each.
      const double share = GetParam() == "abs" ? 1 : 0.5;
      const auto losses = world.sum({job.evaluated(), before});
      EXPECT_LT(losses[0], share * losses[1]);
    });
    if (HasFailure()) return;  // workers forked from here on would count as failed too
  }
}

// Forward reads another point than the model on each worker; what is saved, judged and averaged is
// the model.
TEST(AbsLookahead, ShowsTheModelAndNotWhereForwardReadsIt) {
  for (const char* optimizer : {"sgd", "adamw"})
    test::on_workers(kWorkers, [&](World& world) {
      Job job(world);
      const auto strategy = abs_sgd();
      auto run = optimizer == std::string("sgd")
                     ? distribute(world, *job.net, sgd(0.02).momentum(0.9).clip(1), strategy)
                     : distribute(world, *job.net, adamw(0.02).clip(1), strategy);
      run.keep_ema(0.5);
      const double before = job.evaluated();
      bool differed = false;
      for (int step = 0; step < 40; ++step) {
        job.loss(step).backward();
        run.step(kBatch);
        differed = differed || run.impl().strategy().replicas_differ();
        if (step % 10 != 9) continue;
        torch::Tensor judged;
        run.evaluate([&] { judged = test::flat_parameters(*job.net); });
        EXPECT_TRUE(test::same_on_all(world, judged));
        EXPECT_TRUE(test::same_on_all(world, test::flat_parameters(*job.net)));
        run.impl().replicas().verify();
      }
      EXPECT_TRUE(differed);
      run.flush();
      EXPECT_TRUE(test::same_on_all(world, test::flat_parameters(*job.net)));
      for (const NamedTensor& each : run.impl().averages().ema_values())
        EXPECT_TRUE(test::same_on_all(world, each.tensor)) << each.name;
      EXPECT_LT(job.evaluated(), before);
    });
}

// Forgets it, writes gradients by hand in its place, or freezes all that could get any.
TEST_P(UserLoops, AStepWithoutAGradientIsAnErrorUntilThereIsOne) {
  test::on_workers(2, [](World& world) {
    Job job(world);
    auto run = job.start(StrategySpec(GetParam()));
    const auto refused = [&] {
      const std::string why = test::message_of<ConfigError>([&] { run.step(kBatch); });
      EXPECT_TRUE(test::contains(why, {"step(8)", "backward()", "step(0)"}));
      EXPECT_EQ(why.empty(), false);
    };
    refused();
    for (int step = 0; step < 3; ++step) {
      job.loss(step).backward();
      run.step(kBatch);
      refused();  // the last step's gradients are none
      job.net->zero_grad(step == 0);
      refused();
    }
    const auto moved_by = [&](const std::function<void()>& write) {
      run.flush();
      const torch::Tensor before = test::flat_parameters(*job.net);
      write();
      run.step(kBatch);
      run.flush();
      EXPECT_TRUE(test::same_on_all(world, test::flat_parameters(*job.net)));
      return (test::flat_parameters(*job.net) - before).abs().max().item<float>();
    };
    EXPECT_GT(moved_by([&] {
                for (auto& each : job.net->parameters())
                  each.mutable_grad() = torch::ones_like(each);
              }),
              0.01F);
    EXPECT_GT(moved_by([&] {
                for (auto& each : job.net->parameters()) each.mutable_grad().fill_(1);
              }),
              0.01F);
    EXPECT_NO_THROW(moved_by([&] {  // a gradient that is zero, and meant so
      job.net->parameters()[0].mutable_grad() = torch::zeros({8, kInputs});
    }));
    refused();
    run.accumulate(2);
    job.loss(0).backward();
    EXPECT_NO_THROW(run.step(kBatch));
    refused();
    run.accumulate(1);
    run.expect(0);
    EXPECT_NO_THROW(run.step(0));
    run.freeze([](const ParameterInfo&) { return true; });
    EXPECT_NO_THROW(run.step(kBatch));
    run.flush();
    EXPECT_TRUE(test::same_on_all(world, test::flat_parameters(*job.net)));
  });
}

// Rank 1 calls `leave` instead of its sixth step and returns. Returns, on the others, why they
// failed; empty if they came to their end.
std::string why_others_failed(World world, const StrategySpec& strategy, bool& survives,
                              void (*leave)()) {
  Job job(world);
  try {
    auto run = job.start(strategy);
    survives = run.impl().strategy().survives_losses();
    for (int step = 0; step < 30; ++step) {
      if (world.rank() == 1 && step == 5) {
        leave();
        return "";
      }
      job.loss(step).backward();
      run.step(kBatch);
    }
    run.flush();
    return "";
  } catch (const IoError& error) {
    return error.what();
  }
}

// Its Distributed goes in peace: it waits for the others, who train on without its samples.
TEST_P(UserLoops, AnEarlyReturnOnOneWorkerHoldsNobodyUp) {
  test::as_workers(kWorkers, [](World world) {
    bool survives = false;
    EXPECT_EQ(why_others_failed(std::move(world), StrategySpec(GetParam()), survives, [] {}), "");
  });
}

// The others learn of it, or go on without it where the strategy says so; either way they end.
TEST_P(UserLoops, AnExceptionOnOneWorkerIsNoticedInTime) {
  test::as_workers(kWorkers, [](World world) {
    const int rank = world.rank();
    bool survives = false;
    std::string why;
    try {
      why = why_others_failed(std::move(world), StrategySpec(GetParam()), survives,
                              [] { throw std::logic_error("a bad batch"); });
    } catch (const std::logic_error&) {
      EXPECT_EQ(rank, 1);
      return;
    }
    EXPECT_NE(rank, 1);
    EXPECT_EQ(why.empty(), survives) << why;
    if (!survives) {
      EXPECT_TRUE(test::contains(why, {"rank 1"}));
    }
  });
}

// zero_grad() in the wrong line leaves nothing to step by.
TEST_P(UserLoops, AStepAfterItsGradientsWereClearedIsAnError) {
  test::on_workers(2, [](World& world) {
    Job job(world);
    auto run = job.start(StrategySpec(GetParam()));
    job.loss(0).backward();
    job.net->zero_grad(/*set_to_none=*/true);
    const std::string why = test::message_of<ConfigError>([&] { run.step(kBatch); });
    EXPECT_TRUE(test::contains(why, {"step(8)", "zero_grad()", "step(0)"})) << why;
    run.step(0);
    job.loss(1).backward();
    run.step(kBatch);
    run.flush();
    EXPECT_EQ(run.steps(), 1);
  });
}

// One worker forgets backward(): the others learn of it as of any error.
TEST_P(UserLoops, AStepWithoutAGradientOnOneWorkerIsNoticedInTime) {
  test::as_workers(kWorkers, [](World world) {
    const int rank = world.rank();
    bool survives = false;
    std::string own, others;
    try {
      Job job(world);
      auto run = job.start(StrategySpec(GetParam()));
      survives = run.impl().strategy().survives_losses();
      for (int step = 0; step < 30; ++step) {
        const torch::Tensor loss = job.loss(step);
        if (rank != 1 || step != 5) loss.backward();
        run.step(kBatch);
      }
      run.flush();
    } catch (const ConfigError& error) {
      own = error.what();
    } catch (const IoError& error) {
      others = error.what();
    }
    EXPECT_EQ(own.empty(), rank != 1) << own;
    if (rank != 1 && !survives) {
      EXPECT_TRUE(test::contains(others, {"rank 1"}));
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Strategies, UserLoops, testing::ValuesIn(strategy_names()),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace skein::user_loops_test
