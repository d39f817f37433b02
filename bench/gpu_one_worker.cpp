// What Skein costs on a GPU when there is nobody to talk to: one worker under every strategy beside
// a bare LibTorch loop, in turns in one process.
//
// usage: bench_gpu [SECONDS [OUT.json [toy]]]   SECONDS that each pair is measured for; toy: small
// models on the CPU, to try the program itself
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <exception>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "core/statistics.h"
#include "models/model.h"
#include "skein/torch.h"
#include "strategy/registry.h"
#include "torch/device_stream.h"
#include "train/gpus.h"
#include "train/precision.h"

namespace skein::bench {
namespace {

constexpr double kBudget = 1.02;
constexpr double kLearningRate = 1e-4, kMomentum = 0.9;

struct Case {
  std::string model;
  Settings settings;
  std::vector<std::int64_t> shape;
  std::int64_t classes = 0, batch = 0;
  Precision precision = Precision::f32;

  bool images() const { return shape.size() == 3; }
  const char* precision_name() const { return precision == Precision::f32 ? "f32" : "bf16"; }
};

std::vector<Case> cases(bool toy) {
  const Settings small{{"width", "32"}, {"depth", "2"}, {"heads", "2"}};
  const Settings large{{"width", "768"}, {"depth", "14"}, {"heads", "12"}};  // 100 M parameters
  std::vector<Case> all;
  for (const Precision precision : {Precision::f32, Precision::bf16}) {
    all.push_back(toy ? Case{"resnet18", {}, {3, 16, 16}, 10, 4, precision}
                      : Case{"resnet50", {}, {3, 224, 224}, 1000, 64, precision});
    all.push_back(toy ? Case{"gpt", small, {16}, 32, 4, precision}
                      : Case{"gpt", large, {512}, 96, 16, precision});
  }
  return all;
}

struct Inputs {
  torch::Tensor data, target;
};

// As the trainer has them: images in channels-last where they are computed in bfloat16.
Inputs fixed_inputs(const Case& item, torch::Device device) {
  torch::manual_seed(1);
  std::vector<std::int64_t> shape = item.shape;
  shape.insert(shape.begin(), item.batch);
  if (!item.images())
    return {torch::randint(item.classes, shape, torch::kLong).to(device),
            torch::randint(item.classes, shape, torch::kLong).to(device)};
  torch::Tensor images = torch::randn(shape).to(device);
  if (item.precision == Precision::bf16) images = images.contiguous(at::MemoryFormat::ChannelsLast);
  return {images, torch::randint(item.classes, {item.batch}, torch::kLong).to(device)};
}

// The same model on the same batch, one way of training it.
class Loop {
 public:
  Loop(const Case& item, const Inputs& inputs) : item_(item), inputs_(inputs) {
    torch::manual_seed(2);
    model_ = make_model(item.model, item.shape, item.classes, item.settings);
    model_->to(inputs.data.device());
  }
  virtual ~Loop() = default;
  virtual void step() = 0;

  // Seconds per step; the device has done them all.
  double time(int steps) {
    const auto begin = std::chrono::steady_clock::now();
    for (int i = 0; i < steps; ++i) step();
    finish_stream(inputs_.data.device());
    const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - begin;
    return elapsed.count() / steps;
  }

  Model& model() { return *model_; }

 protected:
  void backward() {
    torch::Tensor loss;
    {
      const Autocast scope(inputs_.data.device().type(), item_.precision);
      loss = loss_of(model_->forward(inputs_.data), inputs_.target);
    }
    loss.backward();
  }

  const Case& item_;
  const Inputs& inputs_;
  std::shared_ptr<Model> model_;
};

class Bare final : public Loop {
 public:
  Bare(const Case& item, const Inputs& inputs) : Loop(item, inputs) {
    if (item.images())
      optimizer_ = std::make_unique<torch::optim::SGD>(
          model_->parameters(), torch::optim::SGDOptions(kLearningRate).momentum(kMomentum));
    else
      optimizer_ = std::make_unique<torch::optim::AdamW>(model_->parameters(),
                                                         torch::optim::AdamWOptions(kLearningRate));
  }
  void step() override {
    optimizer_->zero_grad();
    backward();
    optimizer_->step();
  }

 private:
  std::unique_ptr<torch::optim::Optimizer> optimizer_;
};

class Distributing final : public Loop {
 public:
  Distributing(World& world, const std::string& strategy, const Case& item, const Inputs& inputs)
      : Loop(item, inputs),
        distributed_(distribute(
            world, *model_,
            item.images() ? sgd(kLearningRate).momentum(kMomentum) : adamw(kLearningRate),
            StrategySpec(strategy))) {}
  void step() override {
    backward();
    distributed_.step(item_.batch);
  }

 private:
  Distributed distributed_;
};

struct Times {
  std::vector<double> bare, skein, ratio;
};

// A B, B A, …: neither has the better place.
Times measure(Loop& bare, Loop& skein, double seconds) {
  for (int i = 0; i < 3; ++i) {
    bare.time(2);
    skein.time(2);
  }
  const double step = std::max(bare.time(2), 1e-5);
  const int steps = std::clamp(static_cast<int>(0.1 / step), 1, 50);
  const auto end = std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds);
  Times times;
  for (int round = 0; round < 6 || std::chrono::steady_clock::now() < end; ++round) {
    double one = round % 2 == 0 ? bare.time(steps) : 0;
    const double two = skein.time(steps);
    if (round % 2 == 1) one = bare.time(steps);
    times.bare.push_back(one * 1e3);
    times.skein.push_back(two * 1e3);
    times.ratio.push_back(two / one);
  }
  return times;
}

nlohmann::json compare(World& world, const Case& item, const Inputs& inputs, Loop& bare,
                       const std::string& strategy, double seconds) {
  Distributing skein(world, strategy, item, inputs);
  const Times times = measure(bare, skein, seconds);
  const auto middle = [](const std::vector<double>& values) { return quantile(values, 0.5); };
  const double ratio = middle(times.ratio);
  fmt::print("{:<10}{:<6}{:>6}  {:<10}{:>12.3f}{:>12.3f}{:>10.3f} x{:>10.3f} x  {}\n", item.model,
             item.precision_name(), item.batch, strategy, middle(times.bare), middle(times.skein),
             ratio, quantile(times.skein, 0) / quantile(times.bare, 0),
             ratio <= kBudget ? "" : "MISSED");
  std::fflush(stdout);
  return {{"model", item.model},
          {"precision", item.precision_name()},
          {"batch", item.batch},
          {"strategy", strategy},
          {"bare_ms", middle(times.bare)},
          {"skein_ms", middle(times.skein)},
          {"ratio", ratio},
          {"rounds", times.ratio.size()}};
}

int run(double seconds, const std::string& out, bool toy) {
  at::set_num_threads(1);
  torch::Device device = torch::kCPU;
  if (!toy) {
    const Gpus gpus = find_gpus();
    if (gpus.devices.empty()) {
      fmt::print("no GPU: {}\n", gpus.why_none);
      return 0;
    }
    device = torch::Device(torch::kCUDA, 0);
    fmt::print("{}, LibTorch {}\n", gpus.devices[0].name, TORCH_VERSION);
  }
  World world = World::join();
  fmt::print("One worker beside a bare LibTorch loop, milliseconds a step, budget {} x\n", kBudget);
  fmt::print("{:<10}{:<6}{:>6}  {:<10}{:>12}{:>12}{:>12}{:>12}\n", "model", "", "batch", "strategy",
             "bare p50", "Skein p50", "ratio p50", "of min");
  nlohmann::json rows = nlohmann::json::array();
  for (const Case& item : cases(toy)) {
    const Inputs inputs = fixed_inputs(item, device);
    Bare bare(item, inputs);
    for (const std::string& strategy : strategy_names()) {
      try {
        rows.push_back(compare(world, item, inputs, bare, strategy, seconds));
      } catch (const std::exception& error) {
        fmt::print("{:<10}{:<6}{:>6}  {:<10}failed: {}\n", item.model, item.precision_name(),
                   item.batch, strategy, error.what());
        rows.push_back({{"model", item.model}, {"strategy", strategy}, {"error", error.what()}});
      }
    }
  }
  if (!out.empty()) std::ofstream(out) << rows.dump(1) << "\n";
  return 0;
}

}  // namespace
}  // namespace skein::bench

int main(int count, char** words) try {
  const double seconds = count > 1 ? std::atof(words[1]) : 1.5;
  return skein::bench::run(seconds, count > 2 ? words[2] : "",
                           count > 3 && std::string(words[3]) == "toy");
} catch (const std::exception& error) {
  fmt::print(stderr, "bench_gpu: {}\n", error.what());
  return 1;
}
