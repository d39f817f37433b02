// The virtual cluster with everything that workers hold on a device: the same bits, events and
// times as on the host, however late the device is.
#include <gtest/gtest.h>

#include <cstring>
#include <nlohmann/json.hpp>

#include "kernels/kernels.h"
#include "optimize/adamw.h"
#include "sim/objectives/objectives.h"
#include "sim/scenarios.h"
#include "strategy/registry.h"
#include "toy/toy_device.h"

namespace skein::sim {
namespace {

using namespace std::chrono_literals;

using Values = std::vector<float>;

// An objective of the host whose replicas lie on a device. Gradients are computed where they always
// were, from copies.
class OnDevice final : public Objective {
 public:
  OnDevice(Objective& objective, Queue& queue) : objective_(objective), queue_(queue) {}

  std::unique_ptr<Replica> replica(int rank) override {
    return std::make_unique<Own>(objective_.replica(rank), queue_);
  }
  Queue* queue() override { return &queue_; }
  std::optional<Quality> evaluate(Span parameters) override {
    const auto copied = allocate_on_heap(parameters.count);
    copy(copied->span(), parameters);
    queue_.finish();
    return objective_.evaluate(copied->span());
  }

 private:
  class Own final : public Replica {
   public:
    Own(std::unique_ptr<Replica> host, Queue& queue)
        : host_(std::move(host)),
          queue_(queue),
          arena_(parameters_of(host_->arena()), allocator_of(&queue)),
          drawn_(queue.allocate(arena_.size(), Type::f32)) {
      const OnQueue scope(&queue);
      copy(arena_.parameters(), host_->arena().parameters());
      queue_.finish();
    }
    Arena& arena() override { return arena_; }
    void gradient(std::int64_t samples) override {
      const Span gradients = host_->arena().gradients();
      copy(host_->arena().parameters(), arena_.parameters());
      queue_.finish();
      fill(gradients, 0);
      host_->gradient(samples);
      copy(drawn_->span(), gradients);
      add(arena_.gradients(), drawn_->span());
    }
    double loss() const override { return host_->loss(); }

   private:
    static std::vector<Arena::Parameter> parameters_of(const Arena& arena) {
      std::vector<Arena::Parameter> all;
      for (const Slot& slot : arena.slots()) all.push_back({slot.name, slot.range.count});
      return all;
    }

    std::unique_ptr<Replica> host_;
    Queue& queue_;
    Arena arena_;
    std::unique_ptr<Memory> drawn_;
  };

  Objective& objective_;
  Queue& queue_;
};

// Keeps the models of all replicas, as they are whenever somebody looks.
class Kept final : public Objective {
 public:
  explicit Kept(Objective& objective) : objective_(objective) {}
  std::unique_ptr<Replica> replica(int rank) override {
    auto made = objective_.replica(rank);
    arenas.push_back(&made->arena());
    return made;
  }
  Queue* queue() override { return objective_.queue(); }
  std::optional<Quality> evaluate(Span mean) override {
    models.clear();
    for (const Arena* arena : arenas) {
      const auto values = toy::floats_of(arena->parameters());
      models.emplace_back(values.begin(), values.end());
    }
    return objective_.evaluate(mean);
  }
  std::vector<const Arena*> arenas;
  std::vector<Values> models;

 private:
  Objective& objective_;
};

struct Trained {
  Report report;
  std::vector<Values> models;  // at the end
};

Trained run(const Scenario& scenario, const std::string& objective, Queue* queue) {
  const auto made = make_objective(
      {.name = objective, .workers = scenario.workers, .seed = 3, .skew = 0.5, .dirichlet = {}});
  std::optional<OnDevice> on_device;
  if (queue) on_device.emplace(*made, *queue);
  Kept kept(queue ? static_cast<Objective&>(*on_device) : *made);
  Trained done{simulate(scenario, &kept), {}};
  done.models = kept.models;
  return done;
}

bool same_bits(const std::vector<Values>& a, const std::vector<Values>& b) {
  if (a.size() != b.size()) return false;
  for (std::size_t i = 0; i < a.size(); ++i)
    if (a[i].size() != b[i].size() ||
        std::memcmp(a[i].data(), b[i].data(), a[i].size() * sizeof(float)) != 0)
      return false;
  return true;
}

void expect_the_same(const Trained& host, const Trained& device) {
  EXPECT_EQ(host.report.hash, device.report.hash);
  EXPECT_EQ(host.report.events, device.report.events);
  EXPECT_EQ(host.report.time, device.report.time);
  EXPECT_TRUE(same_bits(host.models, device.models));
  ASSERT_EQ(host.report.observations.size(), device.report.observations.size());
  for (std::size_t i = 0; i < host.report.observations.size(); ++i) {
    const Observation &a = host.report.observations[i], &b = device.report.observations[i];
    EXPECT_EQ(a.time, b.time);
    EXPECT_EQ(a.consensus, b.consensus);
    ASSERT_EQ(a.quality.has_value(), b.quality.has_value());
    if (a.quality) {
      EXPECT_EQ(a.quality->loss, b.quality->loss);
    }
  }
  for (std::size_t i = 0; i < host.report.workers.size(); ++i)
    EXPECT_EQ(host.report.workers[i].strategy, device.report.workers[i].strategy);
}

// Unequal workers on a slow network, so that rounds, exchanges and steps overlap.
Scenario scenario_of(const std::string& strategy, int workers) {
  Network network = plain_network(1e5, 3ms);
  network.chunk_bytes = 512;
  Scenario scenario = hand_scenario(workers, network, hand_profile(1, 10ms, 20ms), 12);
  scenario.strategy = strategy;
  scenario.speeds.resize(static_cast<std::size_t>(workers), 1);
  scenario.speeds.back() = 2;
  scenario.clip = 0.8;
  scenario.observe_samples = kBatch * workers;
  scenario.optimizer = sgd({0.9, 0.01, true});
  if (strategy == "lasgd" || strategy == "local") scenario.strategy_settings = {{"period", "2"}};
  return scenario;
}

class OnADevice : public testing::TestWithParam<std::string> {};

TEST_P(OnADevice, HasTheBitsAndTheEventsOfTheHost) {
  for (const int workers : {1, 3, 4}) {
    const Scenario scenario = scenario_of(GetParam(), workers);
    for (const char* objective : {"quadratic", "logistic"}) {
      toy::ToyQueue queue(static_cast<std::uint64_t>(workers), 4);
      const Trained host = run(scenario, objective, nullptr);
      SCOPED_TRACE(std::string(objective) + " on " + std::to_string(workers));
      EXPECT_TRUE(host.report.completed());
      EXPECT_LT(host.report.observations.back().quality->loss,
                host.report.observations.front().quality->loss);
      expect_the_same(host, run(scenario, objective, &queue));
    }
  }
}

TEST_P(OnADevice, HasThemWithAdamwAndWorkersThatShareHosts) {
  Scenario scenario = scenario_of(GetParam(), 4);
  scenario.network.workers_per_host = 2;
  scenario.optimizer = [](std::size_t size, Allocate allocate) {
    return std::make_unique<Adamw>(size, AdamwOptions{}, std::move(allocate));
  };
  toy::ToyQueue queue(5, 4);
  expect_the_same(run(scenario, "quadratic", nullptr), run(scenario, "quadratic", &queue));
}

// What was on its way when a process ended is given up, on a device too.
TEST_P(OnADevice, HasThemUnderFaults) {
  Scenario scenario = scenario_of(GetParam(), 4);
  scenario.patience = 2s;
  for (const char* faults :
       {"vanish:rank=2,at=100ms", "restart:rank=1,at=95ms,after=30ms",
        "pause:rank=3,at=50ms,for=70ms; delay:rank=0,at=20ms,for=200ms,extra=5ms"}) {
    SCOPED_TRACE(faults);
    scenario.faults = parse_faults(faults, 4, 1);
    toy::ToyQueue queue(6, 4);
    expect_the_same(run(scenario, "quadratic", nullptr), run(scenario, "quadratic", &queue));
  }
}

INSTANTIATE_TEST_SUITE_P(Strategies, OnADevice, testing::ValuesIn(strategy_names()),
                         [](const auto& tested) { return tested.param; });

}  // namespace
}  // namespace skein::sim
