// What a program does to its module behind the run's back: found out, and said on all workers.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <csignal>
#include <cstdio>
#include <filesystem>
#include <functional>

#include "on_workers.h"
#include "skein/torch.h"
#include "strategy/registry.h"
#include "test_net.h"
#include "torch/distributed_impl.h"
#include "torch/replicas.h"

namespace skein::module_changes_test {
namespace {

namespace fs = std::filesystem;
using test::contains;
using test::flat_parameters;
using test::message_of;
using test::same_on_all;

torch::nn::Sequential fresh_net() {
  using torch::nn::Linear, torch::nn::Tanh;
  torch::manual_seed(1);
  torch::nn::Sequential net(Linear(4, 8), Tanh(), Linear(8, 1));
  net->push_back(Linear(1, 1));
  for (torch::Tensor& each : net[3]->parameters()) each.set_requires_grad(false);
  return net;
}

void train(World& world, Distributed& run, torch::nn::Sequential& net, int steps) {
  for (int step = 0; step < steps; ++step) {
    torch::manual_seed(static_cast<std::uint64_t>(100 * world.rank() + step));
    net->forward(torch::randn({8, 4})).square().mean().backward();
    run.step(8);
  }
}

class TemporaryPlace {
 public:
  TemporaryPlace()
      : path_(fs::temp_directory_path() / ("module_changes_" + std::to_string(::getpid()))) {
    fs::create_directories(path_);
  }
  ~TemporaryPlace() { fs::remove_all(path_); }
  std::string operator/(const std::string& name) const { return (path_ / name).string(); }

 private:
  fs::path path_;
};

using Net = torch::nn::Sequential;

struct Change {
  const char* what;
  void (*make)(Net& net);
  test::Names says;
};

const std::vector<Change> kChanges{
    {"a layer is replaced",
     [](Net& net) { net->replace_module("2", torch::nn::Linear(8, 1).ptr()); },
     {"'2.weight'", "replaced"}},
    {"a layer is added",
     [](Net& net) { net->push_back(torch::nn::Linear(1, 1)); },
     {"'4.weight'", "registered after distribute()"}},
    {"a layer is taken away",
     [](Net& net) { net->unregister_module("2"); },
     {"'2.weight'", "no longer in the module"}},
    {"a parameter is added",
     [](Net& net) { net[0]->register_parameter("scale", torch::ones({1})); },
     {"'0.scale'", "registered after distribute()"}},
    {"values are moved",
     [](Net& net) {
       torch::Tensor bias = net[2]->parameters().back();
       bias.set_data(bias.detach().clone());
     },
     {"'2.bias'", "elsewhere"}},
    {"the type is another",
     [](Net& net) { net[2]->to(torch::kFloat64); },
     {"'2.weight'", "elsewhere"}},
    {"a buffer is added",
     [](Net& net) { net[0]->register_buffer("mean", torch::ones({1})); },
     {"buffer '0.mean'", "was not there"}},
    {"a frozen layer is replaced",
     [](Net& net) { net->replace_module("3", torch::nn::Linear(1, 1).ptr()); },
     {"'3.weight'", "replaced"}}};

class ModuleChanges : public testing::TestWithParam<std::string> {};

// On one worker or on all: all throw, and nothing is written.
TEST_P(ModuleChanges, AreAnErrorOnAllAtFlushSaveAndCheckpoint) {
  const TemporaryPlace place;
  for (const Change& change : kChanges)
    for (const bool on_all : {true, false})
      test::on_workers(2, [&](World& world) {
        SCOPED_TRACE(change.what);
        Net net = fresh_net();
        auto run = distribute(world, *net, sgd(0.05), StrategySpec(GetParam()));
        train(world, run, net, 2);
        run.flush();
        if (on_all || world.rank() == 1) change.make(net);
        const std::string file = place / "model.safetensors", folder = place / "checkpoints";
        for (const std::function<void()>& call : std::vector<std::function<void()>>{
                 [&] { run.flush(); }, [&] { run.verify(); }, [&] { run.save(file); },
                 [&] { run.save_checkpoint(folder); }}) {
          const std::string why = message_of<ConfigError>(call);
          EXPECT_TRUE(contains(why, change.says));
          EXPECT_TRUE(contains(why, {"distribute()"}));
        }
        EXPECT_FALSE(fs::exists(file));
        EXPECT_FALSE(fs::exists(folder));
      });
}

// Frozen, unfrozen, cleared, and with buffers of other values: it is the same module.
TEST_P(ModuleChanges, ThatAreNoneAreNotFound) {
  const TemporaryPlace place;
  test::on_workers(3, [&](World& world) {
    test::EveryLayer net = test::fresh_net();
    auto run = distribute(world, *net, adamw(0.01), StrategySpec(GetParam()));
    run.freeze(named("conv.*"));
    for (int step = 0; step < 4; ++step) {
      net->zero_grad();
      test::loss_at(net, step * 3 + world.rank()).backward();
      run.step(4);
      if (step == 1) run.unfreeze(named("conv.*"));
      if (step % 2 == 0) run.verify();
    }
    run.save_checkpoint(place / "c", {}, {.wait = true});
    EXPECT_TRUE(same_on_all(world, flat_parameters(*net)));
    torch::nn::Sequential tied{test::Tied()};
    auto second = distribute(world, *tied, sgd(0.01), StrategySpec(GetParam()));
    second.verify();
  });
}

// A buffer of the same shape in the place of the one that distribute() found: that is averaged,
// saved and lent from then on.
TEST_P(ModuleChanges, FollowABufferThatIsReplaced) {
  const TemporaryPlace place;
  test::on_workers(2, [&](World& world) {
    Net net = fresh_net(), other = fresh_net();
    torch::Tensor& count = net[3]->register_buffer("count", torch::zeros({1}));
    torch::Tensor& loaded = other[3]->register_buffer("count", torch::zeros({1}));
    auto run = distribute(world, *net, sgd(0.05), StrategySpec(GetParam()));
    train(world, run, net, 2);
    const auto own = static_cast<float>(world.rank() + 1);
    count = torch::full({1}, own);
    run.evaluate([&] { EXPECT_EQ(count.item<float>(), 1.5F); });
    EXPECT_EQ(count.item<float>(), own);
    run.save(place / "model.safetensors");
    auto second = distribute(world, *other, sgd(0.05), StrategySpec(GetParam()));
    second.load(place / "model.safetensors");
    EXPECT_EQ(loaded.item<float>(), 1.5F);
    if (world.rank() == 1) count = torch::zeros({2});
    EXPECT_TRUE(
        contains(message_of<ConfigError>([&] { run.flush(); }), {"buffer '3.count'", "[2]"}));
  });
}

class Replicas : public testing::TestWithParam<std::string> {};

// Written after a flush by one worker of three.
TEST_P(Replicas, ThatDifferAreNamedWithTheirRanks) {
  const TemporaryPlace place;
  test::on_workers(3, [&](World& world) {
    for (const char* name : {"0.bias", "2.weight", "3.bias"}) {
      const std::string folder = place / name;
      Net net = fresh_net();
      auto run = distribute(world, *net, sgd(0.05).momentum(0.5), StrategySpec(GetParam()));
      train(world, run, net, 3);
      run.verify();
      run.save_checkpoint(folder, {}, {.wait = true});
      if (world.rank() == 1) {
        const torch::NoGradGuard no_grad;
        auto all = net->named_parameters();
        all[name].view({-1})[0] += 1e-6F;
      }
      const std::string model = place / "model.safetensors";
      for (const std::function<void()>& call :
           std::vector<std::function<void()>>{[&] { run.verify(); }, [&] { run.save(model); },
                                              [&] {
                                                run.save_checkpoint(folder, {{"second", "1"}});
                                              }}) {
        const std::string why = message_of<Error>(call);
        EXPECT_TRUE(contains(why, {std::string("'") + name + "'", "rank 1", "ranks 0, 2"})) << why;
      }
      world.barrier();
      EXPECT_FALSE(fs::exists(model));
      EXPECT_EQ(std::distance(fs::directory_iterator(folder), {}), 2) << "the one before, run.lock";
      world.barrier();
    }
  });
}

// An optimizer of the program's own beside the run.
TEST(ReplicasOfAProgram, ThatStepsItselfDifferAtTheNextCheckpoint) {
  const TemporaryPlace place;
  test::on_workers(2, [&](World& world) {
    Net net = fresh_net();
    auto run = distribute(world, *net, sgd(0.05), allreduce().set("overlap", "false"));
    std::vector<torch::Tensor> trained;
    for (const torch::Tensor& each : net->parameters())
      if (each.requires_grad()) trained.push_back(each);
    torch::optim::SGD own(trained, torch::optim::SGDOptions(0.1));
    torch::manual_seed(static_cast<std::uint64_t>(world.rank()));
    net->forward(torch::randn({8, 4})).square().mean().backward();
    own.step();
    run.step(8);
    EXPECT_TRUE(contains(message_of<Error>([&] { run.save_checkpoint(place / "c"); }),
                         {"'0.weight'", "rank 0", "rank 1", "optimizer"}));
    EXPECT_FALSE(fs::exists(place / "c"));
  });
}

TEST(ReplicaDigest, DiffersInEveryBitAndByOrderAndLength) {
  std::vector<std::uint64_t> words(37, 5);
  const auto digest = [&](std::size_t bytes) {
    return digest_of(std::as_bytes(std::span(words)).first(bytes));
  };
  const std::size_t all = words.size() * sizeof(words[0]);
  const std::uint64_t plain = digest(all);
  EXPECT_EQ(digest(all), plain);
  for (std::uint64_t& word : words)
    for (int bit = 0; bit < 64; ++bit) {
      word ^= std::uint64_t{1} << bit;
      EXPECT_NE(digest(all), plain);
      word ^= std::uint64_t{1} << bit;
    }
  for (std::size_t bytes = 0; bytes < all; ++bytes) EXPECT_NE(digest(bytes), plain) << bytes;
  // Signs of two floats in the same lane, which a product alone would not tell apart.
  words[0] ^= std::uint64_t{1} << 63;
  words[4] ^= std::uint64_t{1} << 63;
  EXPECT_NE(digest(all), plain);
  words[0] = words[4] = 5;
  std::swap(words[1] = 6, words[2]);
  EXPECT_NE(digest(all), plain);
}

INSTANTIATE_TEST_SUITE_P(Strategies, Replicas, testing::ValuesIn(strategy_names()),
                         [](const auto& info) { return info.param; });
INSTANTIATE_TEST_SUITE_P(Strategies, ModuleChanges, testing::ValuesIn(strategy_names()),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace skein::module_changes_test
