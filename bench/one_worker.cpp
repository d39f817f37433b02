// What Skein costs when there is nobody to talk to: one worker under `allreduce` beside a bare
// LibTorch loop, in turns in one process.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <exception>
#include <functional>
#include <vector>

#include "models/model.h"
#include "skein/torch.h"

namespace skein::bench {
namespace {

constexpr double kBudget = 1.02;
constexpr double kLearningRate = 1e-4, kMomentum = 0.9;

struct Case {
  const char* model;
  std::int64_t batch;
  int steps, rounds;  // a round times that many steps of each loop
};
constexpr Case kCases[] = {{"mlp", 32, 4, 400}, {"resnet18", 8, 1, 50}};

struct Batch {
  torch::Tensor input, target;
};

Batch fixed_batch(std::int64_t size) {
  torch::manual_seed(1);
  return {torch::randn({size, 3, 32, 32}), torch::randint(10, {size}, torch::kLong)};
}

std::shared_ptr<Model> fresh_model(const Case& item) {
  torch::manual_seed(2);
  return make_model(item.model, {3, 32, 32}, 10, {});
}

// The same model on the same batch, one way of training it.
class Loop {
 public:
  Loop(const Case& item, const Batch& batch) : model_(fresh_model(item)), batch_(batch) {}
  virtual ~Loop() = default;
  virtual void step() = 0;

  // Seconds per step.
  double time(int steps) {
    const auto begin = std::chrono::steady_clock::now();
    for (int i = 0; i < steps; ++i) step();
    const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - begin;
    return elapsed.count() / steps;
  }

  Model& model() { return *model_; }

 protected:
  torch::Tensor forward() { return loss_of(model_->forward(batch_.input), batch_.target); }
  void backward() { forward().backward(); }
  std::int64_t samples() const { return batch_.input.size(0); }

  std::shared_ptr<Model> model_;

 private:
  const Batch& batch_;
};

// What a loop does besides: two groups of parameters, and a look at the gradient's norm, which is
// clipped where it is absurd.
enum class Extras { none, groups_and_norm };
constexpr double kDecay = 1e-4, kClip = 1e6;

class Bare final : public Loop {
 public:
  Bare(const Case& item, const Batch& batch, Extras extras)
      : Loop(item, batch),
        extras_(extras),
        optimizer_(groups(), torch::optim::SGDOptions(kLearningRate).momentum(kMomentum)) {}
  void step() override {
    optimizer_.zero_grad();
    backward();
    if (extras_ == Extras::groups_and_norm)
      torch::nn::utils::clip_grad_norm_(model_->parameters(), kClip);
    optimizer_.step();
  }

 private:
  std::vector<torch::optim::OptimizerParamGroup> groups() const {
    if (extras_ == Extras::none) return {model_->parameters()};
    std::vector<torch::Tensor> flat, rest;
    for (const auto& each : model_->parameters()) (each.dim() == 1 ? flat : rest).push_back(each);
    const auto options = torch::optim::SGDOptions(kLearningRate).momentum(kMomentum);
    return {{flat, std::make_unique<torch::optim::SGDOptions>(options)},
            {rest, std::make_unique<torch::optim::SGDOptions>(
                       torch::optim::SGDOptions(options).weight_decay(kDecay))}};
  }

  Extras extras_;
  torch::optim::SGD optimizer_;
};

class Distributing final : public Loop {
 public:
  Distributing(World& world, const Case& item, const Batch& batch)
      : Loop(item, batch),
        distributed_(distribute(world, *model_, sgd(kLearningRate).momentum(kMomentum))) {}
  void step() override {
    backward();
    distributed_.step(samples());
  }

 private:
  Distributed distributed_;
};

OptimizerSpec grouped_recipe() {
  const auto decays = [](const ParameterInfo& each) { return each.shape.size() != 1; };
  return sgd(kLearningRate).momentum(kMomentum).group(group(decays).weight_decay(kDecay));
}

// The same with the extras: a group and a hook.
class Hooking final : public Loop {
 public:
  Hooking(World& world, const Case& item, const Batch& batch)
      : Loop(item, batch), distributed_(distribute(world, *model_, grouped_recipe())) {
    distributed_.before_update([](AveragedGradients& g) { g.clip(kClip); });
  }
  void step() override {
    backward();
    distributed_.step(samples());
  }

 private:
  Distributed distributed_;
};

// The same with a record of every step, and a loss in it.
class Recording final : public Loop {
 public:
  Recording(World& world, const Case& item, const Batch& batch)
      : Loop(item, batch),
        distributed_(distribute(world, *model_, sgd(kLearningRate).momentum(kMomentum))) {
    distributed_.on_record(1, [this](const Record& record) { last_ = record; });
  }
  void step() override {
    const torch::Tensor loss = forward();
    loss.backward();
    distributed_.report_loss(loss);
    distributed_.step(samples());
  }

 private:
  Record last_;
  Distributed distributed_;
};

// All at once: a group, a hook, and a record of every step with a loss and a figure in it.
class AllOn final : public Loop {
 public:
  AllOn(World& world, const Case& item, const Batch& batch)
      : Loop(item, batch), distributed_(distribute(world, *model_, grouped_recipe())) {
    distributed_.before_update([this](AveragedGradients& g) {
      norm_ = g.norm();
      g.clip(kClip);
    });
    distributed_.on_record(1, [this](const Record& record) { last_ = record; });
  }
  void step() override {
    const torch::Tensor loss = forward();
    loss.backward();
    distributed_.report_loss(loss);
    distributed_.report("gradient_norm", norm_);
    distributed_.step(samples());
  }

 private:
  double norm_ = 0;
  Record last_;
  Distributed distributed_;
};

double median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2),
                   values.end());
  return values[values.size() / 2];
}

// Both must have trained the same model, or the times say nothing.
double largest_difference(Loop& one, Loop& other) {
  const torch::NoGradGuard no_grad;
  double largest = 0;
  const auto left = one.model().parameters(), right = other.model().parameters();
  for (std::size_t i = 0; i < left.size(); ++i)
    largest = std::max(largest, (left[i] - right[i]).abs().max().item<double>());
  return largest;
}

template <typename Skein>
bool compare(World& world, const Case& item, const std::string& name,
             Extras of_bare = Extras::none) {
  const Batch batch = fixed_batch(item.batch);
  Bare bare(item, batch, of_bare);
  Skein skein(world, item, batch);
  bare.time(item.steps);
  skein.time(item.steps);
  const double difference = largest_difference(bare, skein);
  std::vector<double> bare_times, skein_times, ratios;
  for (int round = 0; round < item.rounds; ++round) {
    // A B, B A, …: neither has the better place.
    double bare_time = 0, skein_time = 0;
    if (round % 2 == 0) bare_time = bare.time(item.steps);
    skein_time = skein.time(item.steps);
    if (round % 2 == 1) bare_time = bare.time(item.steps);
    bare_times.push_back(bare_time);
    skein_times.push_back(skein_time);
    ratios.push_back(skein_time / bare_time);
  }
  const double least = *std::min_element(skein_times.begin(), skein_times.end()) /
                       *std::min_element(bare_times.begin(), bare_times.end());
  const double ratio = median(ratios);
  fmt::print("{:<19}{:>6}{:>14.3f}{:>14.3f}{:>12.3f} x{:>12.3f} x{:>14.1e}\n", name, item.batch,
             median(bare_times) * 1e3, median(skein_times) * 1e3, ratio, least, difference);
  return ratio <= kBudget;
}

int run() {
  at::set_num_threads(1);
  World world = World::join({.threads = 1});  // as many as the loop beside it has
  fmt::print(
      "One worker under allreduce beside a bare LibTorch loop (SGD, momentum), milliseconds a "
      "step\n");
  fmt::print("{:<19}{:>6}{:>14}{:>14}{:>14}{:>14}{:>14}\n", "model", "batch", "bare p50",
             "Skein p50", "ratio p50", "ratio of min", "difference");
  std::vector<std::string> verdicts;
  const auto judge = [&](const std::string& name, bool kept) {
    verdicts.push_back(
        fmt::format("{}: budget <= {} x: {}", name, kBudget, kept ? "ok" : "MISSED"));
  };
  for (const Case& item : kCases) {
    const std::string name = item.model;
    judge(name, compare<Distributing>(world, item, name));
    judge(name + ", records", compare<Recording>(world, item, name + ", records"));
    judge(name + ", hook", compare<Hooking>(world, item, name + ", hook"));
    judge(name + ", hook (both)",
          compare<Hooking>(world, item, name + ", hook (both)", Extras::groups_and_norm));
    judge(name + ", all", compare<AllOn>(world, item, name + ", all"));
    judge(name + ", all (both)",
          compare<AllOn>(world, item, name + ", all (both)", Extras::groups_and_norm));
  }
  for (const std::string& verdict : verdicts) fmt::print("{}\n", verdict);
  return 0;
}

}  // namespace
}  // namespace skein::bench

// OpenBLAS reads its number of threads when it is loaded: threads of its own would measure the
// host's other load, not Skein.
int main(int, char** argv) try {
  if (std::getenv("OPENBLAS_NUM_THREADS") == nullptr) {
    ::setenv("OPENBLAS_NUM_THREADS", "1", 1);
    ::execv("/proc/self/exe", argv);
  }
  return skein::bench::run();
} catch (const std::exception& error) {
  fmt::print(stderr, "bench_one_worker: {}\n", error.what());
  return 1;
}
