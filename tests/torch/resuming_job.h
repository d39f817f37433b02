// A small training program whose every bit hangs on what a checkpoint must hold: dropout and data
// draw from torch's generator, batch norm has buffers, the rate follows a schedule.
#pragma once

#include <torch/torch.h>

#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "on_workers.h"
#include "skein/torch.h"
#include "strategy/registry.h"
#include "torch/distributed_impl.h"

namespace skein::test {

inline constexpr std::int64_t kRows = 4, kColumns = 6;

struct DropNetImpl : torch::nn::Module {
  explicit DropNetImpl(std::int64_t width = 8)
      : first(register_module("first", torch::nn::Linear(kColumns, width))),
        norm(register_module("norm", torch::nn::BatchNorm1d(width))),
        drop(register_module("drop", torch::nn::Dropout(0.2))),
        last(register_module("last", torch::nn::Linear(width, 1))) {}

  torch::Tensor forward(const torch::Tensor& x) { return last(drop(torch::tanh(norm(first(x))))); }

  torch::nn::Linear first;
  torch::nn::BatchNorm1d norm;
  torch::nn::Dropout drop;
  torch::nn::Linear last;
};
TORCH_MODULE(DropNet);

using Start = std::function<Distributed(World&, torch::nn::Module&, const StrategySpec&)>;

inline std::vector<std::pair<const char*, Start>> optimizers() {
  using namespace torch::optim;
  const auto with = [](auto make) {
    return [make](World& world, torch::nn::Module& net, const StrategySpec& strategy) {
      return distribute(
          world, net,
          [make](std::vector<torch::Tensor> flat) -> std::unique_ptr<torch::optim::Optimizer> {
            return make(std::move(flat));
          },
          0.05, strategy);
    };
  };
  return {
      {"sgd",
       [](World& world, torch::nn::Module& net, const StrategySpec& strategy) {
         return distribute(world, net, sgd(0.1).momentum(0.9).schedule("cosine", 200), strategy);
       }},
      {"adamw",
       [](World& world, torch::nn::Module& net, const StrategySpec& strategy) {
         return distribute(world, net, adamw(0.01).schedule("cosine:warmup=20", 200), strategy);
       }},
      {"torch's RMSprop", with([](std::vector<torch::Tensor> flat) {
         return std::make_unique<RMSprop>(std::move(flat),
                                          RMSpropOptions(0.05).momentum(0.9).centered(true));
       })},
      {"torch's Adagrad", with([](std::vector<torch::Tensor> flat) {
         return std::make_unique<Adagrad>(
             std::move(flat), AdagradOptions(0.05).initial_accumulator_value(0.5).lr_decay(0.1));
       })}};
}

// Strategies that promise a resumed run the bits of one that was not stopped, on several workers.
inline std::vector<std::pair<const char*, StrategySpec>> exact_strategies() {
  return {{"allreduce", allreduce()},
          {"dear", dear().set("fusion", "64")},
          {"dear in bf16", dear().set("fusion", "64").set("wire", "bf16")},
          {"local", local().set("period", "3")},
          {"local with a momentum of the mean",
           local().set("period", "3").set("outer_momentum", "0.7")}};
}

inline std::vector<std::pair<const char*, StrategySpec>> all_strategies() {
  static const std::vector<std::string> names = strategy_names();
  std::vector<std::pair<const char*, StrategySpec>> all;
  for (const std::string& name : names) all.emplace_back(name.c_str(), StrategySpec(name));
  return all;
}

// A worker's model and run.
class ResumingJob {
 public:
  // `seed`: another one for a program that is started again and must not know its first numbers.
  ResumingJob(World& world, const Start& start, const StrategySpec& strategy,
              std::uint64_t seed = 1, std::int64_t width = 8, torch::Device device = torch::kCPU)
      : device_(device),
        net_(seeded(world, seed, width, device)),
        run_(start(world, *net_, strategy)) {}

  void steps(int count) {
    for (int i = 0; i < count; ++i) {
      const auto x = torch::randn({kRows, kColumns}, device_);
      torch::nn::functional::mse_loss(net_(x), x.sum(1, true)).backward();
      run_.step(kRows);
    }
  }

  // All that training has made, on this worker.
  std::vector<torch::Tensor> state() {
    run_.flush();
    std::vector<torch::Tensor> all{flat_parameters(*net_)};
    for (const auto& each : net_->buffers()) all.push_back(each.clone());
    run_.impl().world().impl().finish([&] { add_optimizer_state(all); });
    all.push_back(torch::tensor({run_.samples(), run_.steps()}, torch::kInt64));
    all.push_back(torch::tensor({run_.learning_rate()}, torch::kFloat64));
    return all;
  }

  DropNet& net() { return net_; }
  Distributed& run() { return run_; }

 private:
  // Of what this worker owns, without the gaps between parameters.
  void add_optimizer_state(std::vector<torch::Tensor>& all) {
    OwnedState& state = run_.impl().optimizer().owned_state();
    for (const auto& [name, vector] : state.vectors())
      for (const Slot& slot : run_.impl().binding().arena().slots())
        for (const Range& own : state.owned()) {
          const std::size_t begin = std::max(slot.range.offset, own.offset);
          const std::size_t end = std::min(slot.range.end(), own.end());
          if (begin >= end) continue;
          const Span part = vector.at(state.place_of({begin, end - begin}));
          all.push_back(
              torch::from_blob(part.data, {static_cast<std::int64_t>(part.count)}, device_)
                  .clone());
        }
  }

  static DropNet seeded(World& world, std::uint64_t seed, std::int64_t width,
                        torch::Device device) {
    torch::manual_seed(100 * seed + static_cast<std::uint64_t>(world.rank()));
    DropNet net(width);
    net->to(device);
    return net;
  }

  torch::Device device_;
  DropNet net_;
  Distributed run_;
};

inline bool equal(const std::vector<torch::Tensor>& one, const std::vector<torch::Tensor>& two) {
  if (one.size() != two.size()) return false;
  for (std::size_t i = 0; i < one.size(); ++i)
    if (!torch::equal(one[i], two[i])) return false;
  return true;
}

// A run that is saved after four steps and goes on, and one that goes on from the checkpoint.
inline void expect_resumed_bits(World& world, const Start& start, const StrategySpec& strategy,
                                const std::string& folder, torch::Device device = torch::kCPU) {
  ResumingJob whole(world, start, strategy, /*seed=*/1, /*width=*/8, device);
  EXPECT_FALSE(whole.run().resume(folder));
  whole.steps(4);
  whole.run().save_checkpoint(folder, {{"epoch", "7"}});
  whole.steps(4);
  whole.run().wait_for_checkpoint();
  const auto expected = whole.state();

  ResumingJob again(world, start, strategy, /*seed=*/2, /*width=*/8, device);
  const Resumed resumed = again.run().resume(folder);
  ASSERT_TRUE(resumed);
  EXPECT_EQ(resumed.number("epoch"), 7);
  EXPECT_EQ(resumed.number("batch", 3), 3);
  EXPECT_EQ(resumed.workers, world.size());
  EXPECT_EQ(again.run().samples(), 4 * kRows * world.size());
  again.steps(4);
  EXPECT_TRUE(equal(expected, again.state()));
}

// A folder that goes with the test.
class TemporaryFolder {
 public:
  // In memory: nobody pulls the plug of this machine, and a disk takes its time.
  TemporaryFolder() {
    const bool memory =
        std::filesystem::is_directory("/dev/shm") && ::access("/dev/shm", W_OK) == 0;
    std::string name = (memory ? "/dev/shm" : std::filesystem::temp_directory_path().string()) +
                       std::string("/skein-resume-XXXXXX");
    path_ = ::mkdtemp(name.data());
  }
  ~TemporaryFolder() { std::filesystem::remove_all(path_); }
  std::string operator/(const std::string& name) const { return (path_ / name).string(); }

 private:
  std::filesystem::path path_;
};

// The same with every optimizer under each of the strategies.
inline void expect_all_resumed(World& world,
                               const std::vector<std::pair<const char*, StrategySpec>>& strategies,
                               const TemporaryFolder& folder, torch::Device device = torch::kCPU) {
  int number = 0;
  for (const auto& [optimizer, start] : optimizers())
    for (const auto& [name, strategy] : strategies) {
      SCOPED_TRACE(std::string(name) + " with " + optimizer);
      expect_resumed_bits(world, start, strategy, folder / std::to_string(number++), device);
    }
}

}  // namespace skein::test
