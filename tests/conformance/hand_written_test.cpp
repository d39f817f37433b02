// A Driver is enough to train a model that knows nothing of it: a perceptron whose forward and
// backward are written by hand, under every strategy on every fabric.
#include <gtest/gtest.h>

#include <array>
#include <cmath>

#include "conformance/harness.h"
#include "core/rng.h"
#include "kernels/kernels.h"
#include "optimize/sgd.h"
#include "skein/error.h"
#include "strategy/driver.h"
#include "strategy/registry.h"

namespace skein::conformance {
namespace {

using namespace std::chrono_literals;

constexpr std::size_t kHidden = 12;
constexpr std::int64_t kBatch = 16;  // of each worker
constexpr double kRate = 0.1, kMomentum = 0.5;

enum Layer { kIn, kInBias, kOut, kOutBias };
const std::vector<Arena::Parameter> kPerceptron{
    {"in", 2 * kHidden}, {"in bias", kHidden}, {"out", kHidden}, {"out bias", 1}};

struct Sample {
  std::array<float, 2> x;
  float y;
};

// What is to be learnt: y = x0 x1. A sample depends on its number alone.
std::vector<Sample> samples_from(std::int64_t first, std::int64_t count) {
  std::vector<Sample> samples;
  for (std::int64_t i = first; i < first + count; ++i) {
    Rng rng = Rng(1).split(static_cast<std::uint64_t>(i));
    const auto a = static_cast<float>(rng.uniform(-1, 1)),
               b = static_cast<float>(rng.uniform(-1, 1));
    samples.push_back({{a, b}, a * b});
  }
  return samples;
}

// out · tanh(in x + in bias) + out bias, and the mean of its squared errors.
class Perceptron {
 public:
  explicit Perceptron(Arena& arena) : arena_(arena) {
    Rng rng(2);
    for (const Layer layer : {kIn, kOut})
      for (float& weight : parameter(layer)) weight = static_cast<float>(rng.uniform(-1, 1));
  }

  void read_in(const std::vector<Sample>& batch) {
    batch_ = batch;
    hidden_.clear();
    for (const Sample& sample : batch_)
      for (std::size_t i = 0; i < kHidden; ++i)
        hidden_.push_back(std::tanh(parameter(kIn)[2 * i] * sample.x[0] +
                                    parameter(kIn)[2 * i + 1] * sample.x[1] +
                                    parameter(kInBias)[i]));
  }

  double read_out() {
    double loss = 0;
    errors_.clear();
    for (std::size_t n = 0; n < batch_.size(); ++n) {
      float y = parameter(kOutBias)[0];
      for (std::size_t i = 0; i < kHidden; ++i) y += parameter(kOut)[i] * hidden(n, i);
      errors_.push_back(2 * (y - batch_[n].y) / static_cast<float>(batch_.size()));
      loss +=
          std::pow(static_cast<double>(y - batch_[n].y), 2) / static_cast<double>(batch_.size());
    }
    return loss;
  }

  void backward_out() {
    for (std::size_t n = 0; n < batch_.size(); ++n) {
      gradient(kOutBias)[0] += errors_[n];
      for (std::size_t i = 0; i < kHidden; ++i) gradient(kOut)[i] += errors_[n] * hidden(n, i);
    }
  }

  void backward_in() {
    for (std::size_t n = 0; n < batch_.size(); ++n)
      for (std::size_t i = 0; i < kHidden; ++i) {
        const float slope = errors_[n] * parameter(kOut)[i] * (1 - hidden(n, i) * hidden(n, i));
        gradient(kInBias)[i] += slope;
        for (std::size_t k = 0; k < 2; ++k) gradient(kIn)[2 * i + k] += slope * batch_[n].x[k];
      }
  }

 private:
  std::span<float> of(Span plane, Layer layer) const {
    return floats_of(plane.at(arena_.slots()[layer].range));
  }
  std::span<float> parameter(Layer layer) const { return of(arena_.parameters(), layer); }
  std::span<float> gradient(Layer layer) const { return of(arena_.gradients(), layer); }
  float hidden(std::size_t n, std::size_t i) const { return hidden_[n * kHidden + i]; }

  Arena& arena_;
  std::vector<Sample> batch_;
  std::vector<float> hidden_, errors_;
};

// Of samples that nobody trains on.
double loss_of(Perceptron& model) {
  model.read_in(samples_from(1 << 20, 200));
  return model.read_out();
}

struct Trained {
  std::vector<float> model;
  double loss_before, loss_after;
};

// The same by one process, with the batches of all workers.
Trained train_alone(int workers, int steps) {
  Arena arena(kPerceptron, allocate_on_heap);
  Sgd optimizer(arena.size(), {kMomentum, 0, false});
  Perceptron model(arena);
  const double before = loss_of(model);
  for (int step = 0; step < steps; ++step) {
    model.read_in(samples_from(step * kBatch * workers, kBatch * workers));
    model.read_out();
    model.backward_out();
    model.backward_in();
    optimizer.update({0, arena.size()}, arena.parameters(), arena.gradients(),
                     {.learning_rate = kRate, .step = step + 1});
  }
  const auto values = floats_of(arena.parameters());
  return {{values.begin(), values.end()}, before, loss_of(model)};
}

// What a program has to say to a driver: what it is about to read, and which gradients are there.
Task<Trained> train(Fabric& fabric, std::string name, StrategyOptions options, int updates) {
  Arena arena(kPerceptron, [&](std::size_t count) { return fabric.allocate(count); });
  Sgd optimizer(arena.size(), {kMomentum, 0, false}, allocator(fabric));
  WorkerTime time;
  Worker worker(fabric, arena, optimizer, LearningRate(kRate, Schedule{}), time, 120s, 0);
  const auto strategy = make_strategy(name, options, worker);
  const ScopedJob background(fabric.loop().spawn_background(strategy->background()));
  Program program;
  Driver driver(worker, *strategy, time, program);
  Perceptron model(arena);
  const double before = loss_of(model);
  const auto about_to_read = [&](Layer layer) -> Task<> {
    if (const int bucket = driver.unread(layer); bucket >= 0) co_await driver.need(bucket);
  };
  for (int step = 0; worker.progress.steps < updates; ++step) {
    driver.expect(kBatch);
    co_await about_to_read(kIn);
    co_await about_to_read(kInBias);
    model.read_in(samples_from((step * fabric.size() + fabric.rank()) * kBatch, kBatch));
    co_await about_to_read(kOut);
    co_await about_to_read(kOutBias);
    model.read_out();
    co_await fabric.loop().sleep_for(100us);  // as a larger model would take
    co_await driver.begin();
    model.backward_out();
    driver.gradient(kOutBias);
    driver.gradient(kOut);
    model.backward_in();
    driver.gradient(kInBias);
    driver.gradient(kIn);
    co_await driver.end(kBatch);
  }
  co_await driver.flush();
  const auto values = floats_of(arena.parameters());
  co_return Trained{{values.begin(), values.end()}, before, loss_of(model)};
}

class HandWrittenModel : public testing::TestWithParam<std::tuple<World, int, std::string>> {};

TEST_P(HandWrittenModel, TrainsUnderEveryStrategy) {
  const auto& [world, size, name] = GetParam();
  expect_ok(world, size, [name = name](Fabric& fabric) -> Task<> {
    const Trained trained = co_await train(fabric, name, {}, 200);
    if (!(trained.loss_after < trained.loss_before / 20))
      throw Error("the loss went from " + std::to_string(trained.loss_before) + " to " +
                  std::to_string(trained.loss_after));
    if (name != "allreduce" && name != "dear" && fabric.size() > 1) co_return;
    const Trained alone = train_alone(fabric.size(), 200);
    for (std::size_t i = 0; i < alone.model.size(); ++i)
      if (!(std::abs(trained.model[i] - alone.model[i]) <= (fabric.size() == 1 ? 0 : 1e-4F)))
        throw Error("element " + std::to_string(i) + " is " + std::to_string(trained.model[i]) +
                    ", one process has " + std::to_string(alone.model[i]));
    if (name != "dear") co_return;
    const StrategyOptions by_tensor{{"fusion", "none"}};
    const Trained sharded = co_await train(fabric, "dear", by_tensor, 200);
    const Trained whole = co_await train(fabric, "allreduce", by_tensor, 200);
    if (sharded.model != whole.model) throw Error("not the bits of allreduce");
  });
}

INSTANTIATE_TEST_SUITE_P(Worlds, HandWrittenModel,
                         testing::Combine(testing::ValuesIn(worlds()), testing::Values(1, 3),
                                          testing::ValuesIn(strategy_names())),
                         name_of_three);

}  // namespace
}  // namespace skein::conformance
