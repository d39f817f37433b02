// How a worker leaves a run before its end, how a program interrupts a wait, and what a child of
// fork() may do.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <torch/torch.h>
#include <unistd.h>

#include <chrono>
#include <stdexcept>

#include "on_workers.h"
#include "skein/torch.h"
#include "strategy/registry.h"
#include "test_net.h"
#include "torch/distributed_impl.h"
#include "torch/evaluation.h"

namespace skein::leaving_test {
namespace {

using test::as_workers;
using test::contains;
using test::EveryLayer;
using test::fresh_net;
using test::loss_at;
using test::message_of;
using test::on_workers;

class Leaving : public testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(Strategies, Leaving, testing::ValuesIn(strategy_names()),
                         [](const auto& param) { return param.param; });

void step(EveryLayer& net, Distributed& run, World& world, int number) {
  loss_at(net, number * world.size() + world.rank()).backward();
  run.step(4);
}

double seconds_of(const auto& action) {
  const auto begin = std::chrono::steady_clock::now();
  action();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

// A program in a language whose exceptions C++ does not see says fail() and lets its objects go:
// their ends must neither wait for a last update nor make one.
TEST_P(Leaving, FailReachesTheOthersAtOnce) {
  as_workers(2, [](World world) {
    const bool leaves = world.rank() == 1;
    EveryLayer net = fresh_net();
    std::optional<Distributed> run(
        distribute(world, *net, sgd(0.01).momentum(0.9), StrategySpec(GetParam())));
    for (int i = 0; i < 3; ++i) step(net, *run, world, i);
    run->flush();
    if (leaves) {
      loss_at(net, 7).backward();
      world.fail("ValueError: the label is 11, and there are 10 classes");
      EXPECT_TRUE(contains(message_of<Error>([&] { run->step(4); }), {"ValueError"}));
      EXPECT_TRUE(contains(message_of<Error>([&] { run->flush(); }), {"ValueError"}));
      EXPECT_LT(seconds_of([&] { run.reset(); }), test::kPatience.count() / 4.0);
      return;
    }
    // Those that need no others go on until they look for them.
    const auto go_on = [&] {
      world.sum_integers({1});
      for (int i = 3; i < 6; ++i) step(net, *run, world, i);
      run->flush();
    };
    if (traits_of(GetParam()).survives_losses) {
      try {
        go_on();
      } catch (const IoError&) {
      }
      return;
    }
    std::string why;
    EXPECT_LT(seconds_of([&] { why = message_of<IoError>(go_on); }), test::kPatience.count() / 4.0);
    EXPECT_TRUE(contains(why, {"the label is 11"}));
    run.reset();
  });
}

struct Interrupt : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// Ctrl-C in a language that handles signals between its own instructions: a worker that waits for
// one that never comes is asked, and what it throws keeps its class.
TEST(Waiting, IsInterruptedByTheProgram) {
  as_workers(2, [](World world) {
    EveryLayer net = fresh_net();
    std::optional<Distributed> run(distribute(world, *net, sgd(0.01), dear()));
    step(net, *run, world, 0);
    if (world.rank() == 1) {  // computes for a long time, as far as the other knows
      EXPECT_TRUE(contains(message_of<IoError>([&] { world.barrier(); }), {"KeyboardInterrupt"}));
      return;
    }
    int asked = 0;
    world.on_wait([&] {
      if (++asked == 5) throw Interrupt("KeyboardInterrupt");
    });
    const double seconds = seconds_of([&] { EXPECT_THROW(step(net, *run, world, 1), Interrupt); });
    EXPECT_LT(seconds, test::kPatience.count() / 4.0);
    EXPECT_EQ(asked, 5);
    run.reset();
  });
}

// A process that loads data is a copy of its worker. What it does with the bound model, or what
// ends in it, is nobody else's business.
TEST_P(Leaving, AForkedChildIsInert) {
  on_workers(2, [](World& world) {
    EveryLayer net = fresh_net(), twin = fresh_net();
    std::optional<Distributed> run(
        distribute(world, *net, sgd(0.01).momentum(0.9), StrategySpec(GetParam())));
    std::optional<Distributed> other(
        distribute(world, *twin, sgd(0.01).momentum(0.9), StrategySpec(GetParam())));
    for (int i = 0; i < 6; ++i) {
      step(net, *run, world, i);
      const pid_t child = ::fork();
      if (child == 0) {
        ::alarm(60);
        int code = 0;
        {
          const torch::NoGradGuard no_grad;  // autograd has threads of its parent
          code |= loss_at(net, i).isfinite().item<bool>() ? 0 : 1;
        }
        if (message_of<Error>([&] { run->step(4); }).empty()) code |= 2;
        if (message_of<Error>([&] { run->flush(); }).empty()) code |= 4;
        if (message_of<Error>([&] { world.barrier(); }).empty()) code |= 8;
        run.reset();
        { World gone = std::move(world); }
        ::_exit(code);
      }
      int status = -1;
      ::waitpid(child, &status, 0);
      EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << "status " << status;
      step(twin, *other, world, i);
    }
    run->flush();
    other->flush();
    if (traits_of(GetParam()).synchronous) test::expect_same_bits(twin, net, 6);
  });
}

// As a `with` of another language has it.
TEST_P(Leaving, AnEvaluationIsBegunAndEnded) {
  on_workers(2, [](World& world) {
    EveryLayer net = fresh_net();
    Distributed run = distribute(world, *net, sgd(0.01).momentum(0.9), StrategySpec(GetParam()));
    for (int i = 0; i < 3; ++i) step(net, run, world, i);
    auto evaluation = std::make_unique<Evaluation>(run.impl(), Weights::trained);
    EXPECT_FALSE(net->is_training());
    EXPECT_FALSE(torch::GradMode::is_enabled());
    EXPECT_TRUE(test::same_on_all(world, test::flat_parameters(*net)));
    EXPECT_THROW(run.step(4), ConfigError);
    EXPECT_THROW(Evaluation(run.impl(), Weights::trained), ConfigError) << "one within another";
    evaluation.reset();
    EXPECT_TRUE(net->is_training());
    EXPECT_TRUE(torch::GradMode::is_enabled());
    for (int i = 3; i < 6; ++i) step(net, run, world, i);
    run.flush();
    EXPECT_TRUE(test::same_on_all(world, test::flat_parameters(*net)));
  });
}

}  // namespace
}  // namespace skein::leaving_test
