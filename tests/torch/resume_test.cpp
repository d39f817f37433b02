// save_checkpoint() and resume() in a program's own loop.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <torch/torch.h>

#include <csignal>
#include <fstream>

#include "keep/checkpoint_files.h"
#include "keep/checkpoint_state.h"
#include "on_workers.h"
#include "own_optimizers.h"
#include "resuming_job.h"
#include "test_net.h"

namespace skein::resume_test {
namespace {

using namespace test;
namespace fs = std::filesystem;

const Start kSgd = optimizers()[0].second;

TEST(Resume, OneWorkerGoesOnBitForBitUnderEveryStrategy) {
  const TemporaryFolder folder;
  on_workers(1, [&](World& world) { expect_all_resumed(world, all_strategies(), folder); });
}

TEST(Resume, WorkersGoOnBitForBitWhereTheStrategyPromisesIt) {
  const TemporaryFolder folder;
  on_workers(3, [&](World& world) { expect_all_resumed(world, exact_strategies(), folder); });
}

// Such an optimizer is given whole tensors, and so is its state when it comes back.
TEST(Resume, AnOptimizerOfWholeTensorsGoesOnBitForBit) {
  const Start lamb = [](World& world, torch::nn::Module& net, const StrategySpec& strategy) {
    return distribute(world, net, torch_optimizer<WholeLamb>(MineOptions(0.02)), strategy);
  };
  const TemporaryFolder folder;
  for (const int workers : {1, 3})
    on_workers(workers, [&](World& world) {
      for (const auto& [name, strategy] : workers == 1 ? all_strategies() : exact_strategies()) {
        if (strategy.name == "dear") continue;  // which refuses it
        SCOPED_TRACE(name);
        expect_resumed_bits(world, lamb, strategy, folder / (std::to_string(workers) + "-" + name));
      }
    });
}

// Where timing decides what happens next, a run still goes on from exactly what was saved.
TEST(Resume, EveryStrategyComesBackWithAllThatWasSaved) {
  const TemporaryFolder folder;
  on_workers(3, [&](World& world) {
    for (const auto& [name, strategy] : all_strategies()) {
      SCOPED_TRACE(name);
      const auto words = [](ResumingJob& job) {
        std::vector<std::int64_t> found;
        job.run().impl().look_at([&](const Strategy& its) { found = its.own_words(); });
        return found;
      };
      ResumingJob first(world, kSgd, strategy);
      first.steps(5 + world.rank());
      first.run().flush();
      first.run().save_checkpoint(folder / name, {}, {.wait = true});
      const auto expected = first.state();
      const auto generator = torch::rand({1});

      ResumingJob again(world, kSgd, strategy, /*seed=*/2);
      ASSERT_TRUE(again.run().resume(folder / name));
      EXPECT_EQ(torch::rand({1}).item<float>(), generator.item<float>());
      EXPECT_EQ(words(again), words(first));
      EXPECT_TRUE(equal(expected, again.state()));
      again.steps(5);
      again.run().flush();
      EXPECT_EQ(again.run().samples(), first.run().samples() + 3 * 5 * kRows);
      EXPECT_TRUE(same_on_all(world, flat_parameters(*again.net())));
    }
  });
}

// The optimizer's state was sharded over three. Full batches, so that every number of workers
// computes the same gradient, but for its rounding.
TEST(Resume, AnotherNumberOfWorkersAndAnotherStrategyGoOn) {
  const TemporaryFolder folder;
  const auto x = torch::sin(torch::arange(12 * kColumns, torch::kFloat32)).view({12, kColumns});
  const auto train = [&](World& world, torch::nn::Linear& net, Distributed& run) {
    for (int step = 0; step < 3; ++step) {
      const auto own = x.tensor_split(world.size())[world.rank()];
      torch::nn::functional::mse_loss(net(own), own.sum(1, true)).backward();
      run.step(own.size(0));
    }
    run.flush();
  };
  on_workers(3, [&](World& world) {
    torch::nn::Linear net(kColumns, 1);
    auto run = distribute(world, *net, adamw(0.01), dear().set("fusion", "64"));
    train(world, net, run);
    run.save_checkpoint(folder / "dear");
    train(world, net, run);
    run.save((folder / "expected"));
  });
  for (const int workers : {1, 2, 3})
    on_workers(workers, [&](World& world) {
      torch::nn::Linear net(kColumns, 1), expected(kColumns, 1);
      auto run = distribute(world, *net, adamw(0.01), allreduce().set("fusion", "64"));
      EXPECT_EQ(run.resume(folder / "dear").workers, 3);
      EXPECT_EQ(run.samples(), 36);
      train(world, net, run);
      const auto mine = flat_parameters(*net);
      run.load(folder / "expected");
      EXPECT_LT((flat_parameters(*net) - mine).abs().max().item<float>(),
                workers == 3 ? 1e-30 : 1e-5);
    });
}

// Where each worker had an optimizer's state of its own, or has now, the averaged one serves.
TEST(Resume, EveryStrategyGoesOnFromEveryOther) {
  const TemporaryFolder folder;
  const Start start = optimizers()[1].second;
  on_workers(2, [&](World& world) {
    for (const auto& [before, first] : all_strategies()) {
      ResumingJob job(world, start, first);
      job.steps(3);
      job.run().save_checkpoint(folder / before, {}, {.wait = true});
      const auto saved = flat_parameters(*job.net());
      const std::int64_t samples = job.run().samples();
      for (const auto& [after, second] : all_strategies()) {
        SCOPED_TRACE(fmt::format("{} after {}", after, before));
        ResumingJob again(world, start, second, /*seed=*/2);
        ASSERT_TRUE(again.run().resume(folder / before));
        EXPECT_TRUE(torch::equal(flat_parameters(*again.net()), saved));
        constexpr std::size_t kFirstOfOptimizer = 4;  // after the parameters and three buffers
        EXPECT_GT(again.state()[kFirstOfOptimizer].abs().max().item<float>(), 0);
        again.steps(2);
        again.run().flush();
        EXPECT_EQ(again.run().samples(), samples + 2 * 2 * kRows);
        EXPECT_TRUE(same_on_all(world, flat_parameters(*again.net())));
      }
    }
  });
}

// What weighs 1 in an average of allreduce is one worker's batch; abs compares rounds, which hold
// all workers' batches: its first one is the measure.
TEST(Resume, AbsScalesTheRateByItsOwnRoundsAfterACheckpointOfAllreduce) {
  const TemporaryFolder folder;
  on_workers(2, [&](World& world) {
    const auto trained = [&](Distributed& run, torch::nn::Linear& net) {
      for (int step = 0; step < 4; ++step) {
        torch::manual_seed(static_cast<std::uint64_t>(10 * step + world.rank()));
        net(torch::randn({kRows, kColumns})).square().mean().backward();
        run.step(kRows);
      }
      run.flush();
      return flat_parameters(*net);
    };
    {
      torch::nn::Linear net(kColumns, 1);
      auto run = distribute(world, *net, sgd(0.01), allreduce());
      trained(run, net);
      run.save_checkpoint(folder / "allreduce", {}, {.wait = true});
    }
    const auto resumed = [&](const char* scaling) {
      torch::nn::Linear net(kColumns, 1);
      auto run = distribute(
          world, *net, sgd(0.01),
          abs_sgd().set("delay", "0").set("max_micro_batches", "1").set("lr_scaling", scaling));
      EXPECT_TRUE(run.resume(folder / "allreduce"));
      const auto model = trained(run, net);
      EXPECT_EQ(run.impl().worker().progress.batch_reference, kRows);
      EXPECT_EQ(run.impl().worker().progress.round_reference, 2 * kRows);
      return model;
    };
    EXPECT_TRUE(torch::equal(resumed("linear"), resumed("none")));
  });
}

std::string refusal(const std::function<void()>& action) { return message_of<ConfigError>(action); }

TEST(Resume, WhatCannotBeIsRefusedOnAllWorkersAndChangesNothing) {
  const TemporaryFolder folder;
  on_workers(2, [&](World& world) {
    {
      ResumingJob job(world, kSgd, allreduce());
      job.steps(2);
      job.run().save_checkpoint(folder / "c", {}, {.wait = true});
      EXPECT_TRUE(contains(refusal([&] { job.run().resume(folder / "c"); }), {"after 2 steps"}));
      EXPECT_TRUE(
          contains(refusal([&] { job.run().save_checkpoint(folder / "c", {}, {.keep = 0}); }),
                   {"keep = 0"}));
      EXPECT_TRUE(contains(refusal([&] {
                             job.run().save_checkpoint(folder / "c", {{"a", "\xff"}});
                           }),
                           {"\"a\""}));
      torch::nn::functional::mse_loss(job.net()(torch::randn({kRows, kColumns})),
                                      torch::zeros({kRows, 1}))
          .backward();
      EXPECT_TRUE(contains(refusal([&] { job.run().save_checkpoint(folder / "c"); }),
                           {"between backward() and step()"}));
      job.run().step(kRows);
    }
    // Another width, another optimizer.
    ResumingJob wider(world, kSgd, allreduce(), 1, 9);
    const auto before = flat_parameters(*wider.net());
    EXPECT_TRUE(
        contains(refusal([&] { wider.run().resume(folder / "c"); }),
                 {"model.safetensors", "'first.weight' is Float [8, 6]; expected Float [9, 6]"}));
    EXPECT_TRUE(torch::equal(before, flat_parameters(*wider.net())));
    ResumingJob adam(world, optimizers()[1].second, allreduce());
    EXPECT_TRUE(contains(refusal([&] { adam.run().resume(folder / "c"); }),
                         {"optimizer state = momentum", "exp_avg, exp_avg_sq"}));
    adam.steps(1);
    EXPECT_EQ(adam.run().samples(), 2 * kRows);
    // Somebody else's checkpoints are neither removed nor mixed with others.
    EXPECT_TRUE(contains(refusal([&] { adam.run().save_checkpoint(folder / "c"); }),
                         {"there are checkpoints already, the newest of 16 samples", "resume("}));
    EXPECT_EQ(numbered_in(folder / "c").size(), 1u);
  });
}

TEST(Resume, BringsEachWorkersOwnNumbersBackToIt) {
  const TemporaryFolder folder;
  on_workers(3, [&](World& world) {
    const auto own = [&](int rank) {
      return OwnNumbers{{"place", {rank, std::int64_t{1} << 60}}, {"none", {}}};
    };
    ResumingJob first(world, kSgd, StrategySpec("gossip"));
    first.steps(2);
    first.run().save_checkpoint(folder / "c", {}, {.wait = true, .own = own(world.rank())});
    ResumingJob again(world, kSgd, StrategySpec("gossip"));
    const Resumed resumed = again.run().resume(folder / "c");
    ASSERT_TRUE(resumed);
    EXPECT_EQ(resumed.own, own(world.rank()));
    EXPECT_EQ(resumed.run_id.size(), 16u);
    for (const char* name : {"steps", "buffer/norm.running_mean", "strategy", ""})
      EXPECT_TRUE(contains(refusal([&] {
                             again.run().save_checkpoint(folder / "c", {}, {.own = {{name, {1}}}});
                           }),
                           {"own numbers named"}));
  });
  on_workers(2, [&](World& world) {
    ResumingJob fewer(world, kSgd, StrategySpec("gossip"));
    EXPECT_TRUE(fewer.run().resume(folder / "c").own.empty()) << "nobody knows whose they are";
  });
}

TEST(Resume, RefusesAnotherJobByWhatTheProgramSaysItIs) {
  const TemporaryFolder folder;
  on_workers(2, [&](World& world) {
    const Values job{{"model", "small"}, {"data", "noise"}};
    {
      ResumingJob first(world, kSgd, allreduce());
      first.steps(2);
      first.run().save_checkpoint(folder / "c", {}, {.wait = true, .identity = job});
    }
    ResumingJob again(world, kSgd, allreduce());
    EXPECT_TRUE(
        contains(refusal([&] {
                   again.run().resume(folder / "c", {{"model", "large"}, {"data", "noise"}});
                 }),
                 {"model = small", "this run has large", "a resumed run must be the same job"}));
    EXPECT_TRUE(again.run().resume(folder / "c", job));
  });
}

// A generator and a critic, each with a folder; the critic is trained twice as often.
TEST(Resume, TwoRunsOfOneProgramHaveAFolderEach) {
  const TemporaryFolder folder;
  on_workers(2, [&](World& world) {
    const auto train = [&](ResumingJob& maker, ResumingJob& critic) {
      for (int step = 0; step < 3; ++step) {
        critic.steps(2);
        maker.steps(1);
      }
    };
    std::vector<torch::Tensor> expected[2];
    {
      ResumingJob maker(world, kSgd, allreduce()), critic(world, kSgd, dear().set("fusion", "64"));
      train(maker, critic);
      maker.run().save_checkpoint(folder / "maker");
      critic.run().save_checkpoint(folder / "critic");
      maker.run().wait_for_checkpoint();
      EXPECT_TRUE(contains(refusal([&] { critic.run().save_checkpoint(folder / "maker"); }),
                           {"another run saves there now", "expected another folder"}));
      train(maker, critic);
      expected[0] = maker.state();
      expected[1] = critic.state();
    }
    world.barrier();
    ResumingJob maker(world, kSgd, allreduce(), 2),
        critic(world, kSgd, dear().set("fusion", "64"), 2);
    EXPECT_TRUE(maker.run().resume(folder / "maker"));
    EXPECT_TRUE(critic.run().resume(folder / "critic"));  // the program's generators, as saved last
    train(maker, critic);
    EXPECT_TRUE(equal(expected[0], maker.state()));
    EXPECT_TRUE(equal(expected[1], critic.state()));
  });
}

TEST(Resume, TheNewestStayAndADamagedOneIsPassedOver) {
  const TemporaryFolder folder;
  on_workers(2, [&](World& world) {
    const std::string dir = folder / "c";
    const auto names = [&] {
      world.barrier();
      std::vector<std::string> found;
      for (const auto& each : numbered_in(dir)) found.push_back(each.filename().string());
      world.barrier();
      return found;
    };
    std::vector<torch::Tensor> expected;
    {
      ResumingJob job(world, kSgd, allreduce());
      job.run().save_checkpoint(dir, {}, {.keep = 2});  // before anything was trained
      EXPECT_EQ((job.run().wait_for_checkpoint(), names()), (Names{"0"}));
      for (int i = 0; i < 3; ++i) {
        job.steps(1);
        if (i == 1) expected = job.state();
        job.run().save_checkpoint(dir, {}, {.keep = 2});
        job.run().save_checkpoint(dir, {}, {.keep = 2});  // once more at the same place
      }
    }
    EXPECT_EQ(names(), (Names{"16", "24"}));
    if (world.rank() == 0) {
      std::fstream file(dir + "/24/rank-1.safetensors", std::ios::in | std::ios::out);
      file.seekp(-3, std::ios::end);
      file.put('?');
    }
    world.barrier();
    ResumingJob job(world, kSgd, allreduce(), 2);
    EXPECT_EQ(fs::path(job.run().resume(dir).path).filename(), "16");
    EXPECT_TRUE(equal(expected, job.state()));
    job.run().save_checkpoint(dir, {}, {.keep = 1, .wait = true});
    EXPECT_EQ(names(), (Names{"16"}));
    EXPECT_TRUE(fs::exists(dir + "/set-aside-24"));
    // None is whole: that is no fresh start.
    world.barrier();
    if (world.rank() == 0) fs::remove(dir + "/16/model.safetensors");
    world.barrier();
    ResumingJob other(world, kSgd, allreduce(), 2);
    EXPECT_TRUE(contains(refusal([&] { other.run().resume(dir); }), {"16/model.safetensors"}));
  });
}

TEST(Resume, CountsOf64BitsComeBack) {
  const TemporaryFolder folder;
  on_workers(1, [&](World& world) {
    for (const std::int64_t samples : {(std::int64_t{1} << 40) + 5, (std::int64_t{1} << 62) + 3}) {
      const std::string dir = folder / std::to_string(samples);
      ResumingJob job(world, kSgd, allreduce());
      job.run().impl().worker().progress = {samples, samples / 7, 9};
      job.run().save_checkpoint(dir);
      job.run().wait_for_checkpoint();
      ResumingJob again(world, kSgd, allreduce());
      EXPECT_TRUE(again.run().resume(dir));
      EXPECT_EQ(again.run().samples(), samples);
      EXPECT_EQ(again.run().steps(), samples / 7);
    }
  });
}

// One worker's disk is full: all hear of it from the next call, training goes on, the checkpoint
// before it is there, and the next one that fits is saved.
TEST(Resume, AFullDiskCostsNothingButTheCheckpoint) {
  const TemporaryFolder folder;
  on_workers(2, [&](World& world) {
    std::signal(SIGXFSZ, SIG_IGN);
    const auto limit_files = [&](rlim_t bytes) {
      const rlimit limit{bytes, RLIM_INFINITY};
      if (world.rank() == 1) ::setrlimit(RLIMIT_FSIZE, &limit);
    };
    const std::string dir = folder / "c";
    ResumingJob job(world, kSgd, allreduce());
    job.steps(1);
    job.run().save_checkpoint(dir, {}, {.keep = 1, .wait = true});
    limit_files(512);
    job.steps(1);
    job.run().save_checkpoint(dir, {}, {.keep = 1});
    job.steps(1);
    EXPECT_TRUE(contains(message_of<Error>([&] { job.run().save_checkpoint(dir); }),
                         {"not saved", "rank 1", "rank-1.safetensors"}));
    EXPECT_TRUE(inspect(dir + "/8").whole());
    limit_files(RLIM_INFINITY);
    job.steps(1);
    job.run().save_checkpoint(dir, {}, {.keep = 1, .wait = true});
    EXPECT_EQ(numbered_in(dir).size(), 1u);
    EXPECT_TRUE(inspect(dir + "/32").whole());
    world.barrier();
  });
}

// A worker is lost, and the others save without it: what they save brings three back.
TEST(Resume, WhatTheLivingSaveBringsAllBack) {
  const TemporaryFolder folder;
  const auto statuses = statuses_of_workers(3, [&](World world) {
    ResumingJob job(world, kSgd, gossip());
    job.steps(3);
    if (world.rank() == 0) ::raise(SIGKILL);
    job.steps(3);
    job.run().save_checkpoint(folder / "c", {{"who", "1"}});
    job.steps(3);
    job.run().wait_for_checkpoint();
  });
  EXPECT_TRUE(WIFSIGNALED(statuses[0]));
  EXPECT_EQ(statuses[1], 0);
  EXPECT_EQ(statuses[2], 0);
  on_workers(3, [&](World& world) {
    ResumingJob job(world, kSgd, gossip(), 2);
    EXPECT_EQ(job.run().resume(folder / "c").text("who"), "1");
    EXPECT_TRUE(same_on_all(world, flat_parameters(*job.net())));
    job.steps(3);
    job.run().flush();
  });
}

// The worker that leads is lost between two saves, in a run that is new and in one that goes on.
TEST(Resume, TheFolderStaysTheRunsWhenItsLeaderIsLost) {
  const TemporaryFolder folder;
  const std::string dir = folder / "c";
  for (const bool again : {false, true}) {
    const auto statuses = statuses_of_workers(3, [&](World world) {
      ResumingJob job(world, kSgd, gossip());
      EXPECT_EQ(static_cast<bool>(job.run().resume(dir)), again);
      job.steps(3);
      job.run().save_checkpoint(dir, {{"save", "1"}}, {.keep = 9, .wait = true});
      if (world.rank() == 0) ::raise(SIGKILL);
      job.steps(3);
      job.run().save_checkpoint(dir, {{"save", "2"}}, {.keep = 9, .wait = true});
    });
    EXPECT_TRUE(WIFSIGNALED(statuses[0]));
    EXPECT_EQ(statuses[1], 0);
    EXPECT_EQ(statuses[2], 0);
  }
  std::map<std::string, int> ids;
  for (const auto& each : fs::directory_iterator(dir)) {
    if (each.path().filename() == "run.lock") continue;
    EXPECT_GE(samples_of(each.path()), 0) << each.path();
    EXPECT_TRUE(inspect(each.path()).whole());
    ++ids[read_state(each.path()).run_id];
  }
  ASSERT_EQ(ids.size(), 1u) << "one run";
  EXPECT_EQ(ids.begin()->second, 4) << "two saves of each start";
}

// One that goes on from a checkpoint that somebody keeps under a name of its own.
TEST(Resume, ACheckpointOfAnotherNameIsWhereItWasMade) {
  const TemporaryFolder folder;
  on_workers(2, [&](World& world) {
    const std::string dir = folder / "c";
    {
      ResumingJob job(world, kSgd, allreduce());
      for (int i = 0; i < 3; ++i) {
        job.steps(1);
        job.run().save_checkpoint(dir, {}, {.wait = true});
      }
    }
    if (world.rank() == 0) fs::copy(dir + "/16", dir + "/best");
    world.barrier();
    ResumingJob job(world, kSgd, allreduce(), 2);
    EXPECT_EQ(fs::path(job.run().resume(dir + "/best").path).filename(), "best");
    EXPECT_EQ(job.run().samples(), 16);
    job.run().save_checkpoint(dir, {}, {.wait = true});
    world.barrier();
    EXPECT_TRUE(inspect(dir + "/8").whole());
    EXPECT_TRUE(inspect(dir + "/16").whole());
    EXPECT_TRUE(fs::exists(dir + "/set-aside-24"));
    EXPECT_FALSE(fs::exists(dir + "/set-aside-8"));
    world.barrier();
  });
}

// The folder has one called "checkpoints", as the --out of skein train has.
TEST(Resume, LooksWhereTheProgramHasSaved) {
  const TemporaryFolder folder;
  on_workers(2, [&](World& world) {
    const std::string dir = folder / "c";
    if (world.rank() == 0) fs::create_directories(dir + "/checkpoints");
    world.barrier();
    ResumingJob job(world, kSgd, allreduce());
    EXPECT_FALSE(job.run().resume(dir));
    job.steps(2);
    job.run().save_checkpoint(dir, {}, {.wait = true});
    ResumingJob again(world, kSgd, allreduce(), 2);
    EXPECT_TRUE(again.run().resume(dir));
    EXPECT_EQ(again.run().samples(), 16);
  });
}

TEST(Resume, CannotBringBackAnAverageThatIsAskedForLater) {
  const TemporaryFolder folder;
  on_workers(2, [&](World& world) {
    ResumingJob job(world, kSgd, allreduce());
    job.run().keep_ema(0.9);
    job.steps(2);
    job.run().save_checkpoint(folder / "c", {}, {.wait = true});
    ResumingJob again(world, kSgd, allreduce(), 2);
    EXPECT_TRUE(again.run().resume(folder / "c"));
    EXPECT_TRUE(
        test::contains(test::message_of<ConfigError>([&] { again.run().keep_ema(0.9); }),
                       {"keep_ema() came after resume()", folder / "c", "before resume()"}));
  });
}

// A file that one worker cannot write, or read: all hear of it at once, and may go on.
TEST(Resume, AModelThatCannotBeWrittenOrReadIsAnErrorOnAll) {
  const TemporaryFolder folder;
  on_workers(3, [&](World& world) {
    ResumingJob job(world, kSgd, allreduce());
    job.steps(1);
    EXPECT_TRUE(contains(message_of<Error>([&] { job.run().save(folder / "none/m.safetensors"); }),
                         {"none/m.safetensors"}));
    job.steps(1);
    job.run().save(folder / "m.safetensors");
    const auto saved = flat_parameters(*job.net());
    job.steps(1);
    const auto trained = flat_parameters(*job.net());
    const std::string missing = world.rank() == 1 ? "none.safetensors" : "m.safetensors";
    EXPECT_TRUE(contains(message_of<Error>([&] { job.run().load(folder / missing); }),
                         {"none.safetensors"}));
    EXPECT_TRUE(torch::equal(flat_parameters(*job.net()), trained));
    job.run().load(folder / "m.safetensors");
    EXPECT_TRUE(torch::equal(flat_parameters(*job.net()), saved));
    job.steps(1);
  });
}

// A list that another program has written: the model is not loaded before it is looked at.
TEST(Resume, FrozenParametersThatAreNotThereLeaveTheRunAsItWas) {
  const TemporaryFolder folder;
  on_workers(1, [&](World& world) {
    const std::string dir = folder / "c";
    {
      ResumingJob job(world, kSgd, allreduce());
      job.steps(1);
      job.run().freeze(named("first.*"));
      job.run().save_checkpoint(dir, {}, {.wait = true});
    }
    const fs::path state = dir + "/4/state.json";
    fs::remove(dir + "/4/checksums.json");
    std::stringstream text;
    text << std::ifstream(state).rdbuf();
    std::string changed = text.str();
    for (std::size_t at = 0; (at = changed.find("first.", at)) != std::string::npos;)
      changed.replace(at, 6, "other.");
    std::ofstream(state) << changed;
    ResumingJob job(world, kSgd, allreduce(), 2);
    const auto before = flat_parameters(*job.net());
    EXPECT_TRUE(contains(refusal([&] { job.run().resume(dir); }), {"frozen", "other."}));
    EXPECT_TRUE(torch::equal(before, flat_parameters(*job.net())));
    EXPECT_EQ(job.run().samples(), 0);
  });
}

TEST(Resume, WorkersThatDoNotSaveAlikeLearnSo) {
  const TemporaryFolder folder;
  on_workers(2, [&](World& world) {
    ResumingJob job(world, kSgd, allreduce());
    job.steps(1);
    EXPECT_TRUE(contains(
        refusal([&] { job.run().save_checkpoint(folder / "c", {}, {.wait = world.rank() == 1}); }),
        {"rank 0 called run.save_checkpoint(), rank 1 called run.save_checkpoint() that waits"}));
    job.steps(1);
    job.run().save_checkpoint(folder / "c");
    job.run().wait_for_checkpoint();
    EXPECT_TRUE(inspect(folder / "c/16").whole());
  });
}

TEST(Resume, NothingIsFlushedBetweenBackwardAndStep) {
  const TemporaryFolder folder;
  for (const auto& strategy : {allreduce(), dear()})
    on_workers(2, [&](World& world) {
      ResumingJob job(world, kSgd, strategy);
      job.steps(1);
      job.run().save(folder / "m");
      const auto x = torch::randn({kRows, kColumns});
      torch::nn::functional::mse_loss(job.net()(x), x.sum(1, true)).backward();
      for (const auto& call : std::vector<std::function<void()>>{
               [&] { job.run().flush(); }, [&] { job.run().save(folder / "m"); },
               [&] { job.run().load(folder / "m"); }})
        EXPECT_TRUE(contains(refusal(call), {"between backward() and step()"}));
      job.run().step(kRows);
      job.run().flush();
    });
}

TEST(ResumeValues, AreOneLineOnATerminal) {
  EXPECT_EQ(print_values({}, 60), "");
  EXPECT_EQ(print_values({{"epoch", "7"}, {"name", "größe"}}, 60), "epoch = 7, name = größe");
  EXPECT_EQ(print_values({{"a", "\x1b[2J\n\x7f\xc2\x9b"}}, 60), "a = \\x1b[2J\\x0a\\x7f\\x9b");
  EXPECT_EQ(print_values({{"a", "öööö"}}, 6), "a = öö…");
  EXPECT_EQ(print_values({{"a", "öööö"}}, 8), "a = öööö");
}

}  // namespace
}  // namespace skein::resume_test
