// A worker that trains without torch.
#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "optimize/sgd.h"
#include "strategy/driver.h"
#include "strategy/registry.h"

namespace skein::toy {

// Computes on a queue of its own; null: on the host.
class QueueProgram final : public Program {
 public:
  explicit QueueProgram(Queue* compute) : compute_(compute) {}
  Mark record() override { return skein::record(compute_); }
  void wait(const Mark& mark) override {
    if (compute_ && mark) compute_->wait(mark);
  }

 private:
  Queue* compute_;
};

struct Recipe {
  double rate = 0.1, momentum = 0, clip = 0;
  Schedule schedule{};
  Duration patience = std::chrono::seconds(120);
  std::uint64_t seed = 0;
  std::unique_ptr<Optimizer> optimizer{};  // null: SGD
  Allocate allocate{};                     // of all memory; null: the fabric's
  Queue* compute = nullptr;
};

// For tests that say themselves what a step is: its members are theirs to use.
struct Trainer {
  Trainer(Fabric& fabric, const std::vector<Arena::Parameter>& parameters, const MakeStrategy& make,
          Recipe recipe)
      : arena(parameters, recipe.allocate ? recipe.allocate : planes_of(fabric)),
        optimizer(recipe.optimizer ? std::move(recipe.optimizer)
                                   : std::make_unique<Sgd>(
                                         arena.size(), SgdOptions{recipe.momentum, 0, false},
                                         recipe.allocate ? recipe.allocate : state_of(fabric))),
        worker(fabric, arena, *optimizer, LearningRate(recipe.rate, recipe.schedule), time,
               recipe.patience, recipe.clip, recipe.seed),
        strategy(make(worker)),
        program(recipe.compute),
        driver(worker, *strategy, time, program) {}

  Trainer(Fabric& fabric, const std::vector<Arena::Parameter>& parameters, const std::string& name,
          const StrategyOptions& options, Recipe recipe = {})
      : Trainer(
            fabric, parameters,
            [&](Worker& worker) { return make_strategy(name, options, worker); },
            std::move(recipe)) {}

  static Allocate planes_of(Fabric& fabric) {
    return [&fabric](std::size_t count) { return fabric.allocate(count); };
  }
  static Allocate state_of(Fabric& fabric) {
    return fabric.loop().queue() ? planes_of(fabric) : Allocate(allocate_on_heap);
  }

  // Starts what the strategy does besides.
  void start() { background = ScopedJob(worker.loop().spawn_background(strategy->background())); }

  int buckets() const { return strategy->plan().count(); }

  // Before forward reads the model.
  Task<> read() {
    for (int bucket = 0; bucket < buckets(); ++bucket) {
      co_await driver.need(bucket);
      driver.follow();
    }
  }

  // Behind backward.
  void all_ready() {
    for (int bucket = 0; bucket < buckets(); ++bucket) driver.bucket_ready(bucket);
  }

  WorkerTime time;
  Arena arena;
  std::unique_ptr<Optimizer> optimizer;
  Worker worker;
  std::unique_ptr<Strategy> strategy;
  QueueProgram program;
  Driver driver;
  ScopedJob background;
};

}  // namespace skein::toy
