// lasgd and local against a serial reference of their recursion, what their merges must leave
// unchanged, and closed forms of their schedule.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "optimize/sgd.h"
#include "sim/references.h"
#include "skein/error.h"
#include "strategy/registry.h"
#include "toy/trainer.h"

namespace skein::sim {
namespace {

using namespace std::chrono_literals;
using Json = nlohmann::json;
using Model = std::vector<float>;

constexpr double kRate = 0.05;

Model values_of(Span span) { return {span.host().begin(), span.host().end()}; }

// What one process computes in which all workers are equally fast.
class Serial {
 public:
  Serial(Objective& objective, int workers, const SgdOptions& options, double rate = kRate,
         float outer_momentum = 0)
      : rate_(rate), outer_momentum_(outer_momentum) {
    for (int rank = 0; rank < workers; ++rank) {
      replicas_.push_back(objective.replica(rank));
      optimizers_.push_back(std::make_unique<Sgd>(replicas_.back()->arena().size(), options));
    }
  }

  void step() {
    ++steps_;
    for (std::size_t r = 0; r < replicas_.size(); ++r) {
      Arena& arena = replicas_[r]->arena();
      replicas_[r]->gradient(kBatch);
      optimizers_[r]->update({0, arena.size()}, arena.parameters(), arena.gradients(),
                             {.learning_rate = rate_, .step = steps_});
    }
  }

  void post() {
    snapshots_.clear();
    for (const auto& replica : replicas_)
      snapshots_.push_back(values_of(replica->arena().parameters()));
    mean_ = ring_sum(snapshots_);
    for (float& value : mean_) value *= 1 / static_cast<float>(replicas_.size());
  }

  // x += a − s
  void merge() {
    for (std::size_t r = 0; r < replicas_.size(); ++r)
      for (std::size_t i = 0; i < mean_.size(); ++i)
        replicas_[r]->arena().parameters().host()[i] += mean_[i] - snapshots_[r][i];
  }

  // x = a: what was done meanwhile is lost.
  void overwrite() {
    for (const auto& replica : replicas_)
      std::copy(mean_.begin(), mean_.end(), replica->arena().parameters().host().data());
  }

  // v = μ v + (a − A), x += μ v, A = a + μ v; the first mean is A.
  void move_on() {
    if (outer_momentum_ == 0) return;
    if (anchor_.empty()) {
      anchor_ = mean_;
      velocity_.assign(mean_.size(), 0);
      return;
    }
    for (std::size_t i = 0; i < mean_.size(); ++i) {
      velocity_[i] = outer_momentum_ * velocity_[i] - anchor_[i] + mean_[i];
      const float on = outer_momentum_ * velocity_[i];
      anchor_[i] = mean_[i] + on;
      for (const auto& replica : replicas_) replica->arena().parameters().host()[i] += on;
    }
  }

  const Model& average() {
    post();
    overwrite();
    return mean_;
  }

  // Rounds that are on their way while `in_flight` steps are made; ends like a run of `steps`.
  const Model& run_lasgd(std::int64_t steps, int in_flight) {
    for (std::int64_t counted = 0; counted < steps;) {
      step();
      post();
      counted = steps_;
      for (int i = 0; i < in_flight; ++i) step();
      merge();
      move_on();
    }
    return average();
  }

  const Model& run_local(std::int64_t steps, int period) {
    while (steps_ < steps) {
      for (int i = 0; i < period; ++i) step();
      average();
      move_on();
    }
    return average();
  }

 private:
  double rate_;
  float outer_momentum_;
  Model anchor_, velocity_;
  std::vector<std::unique_ptr<Replica>> replicas_;
  std::vector<std::unique_ptr<Sgd>> optimizers_;
  std::vector<Model> snapshots_;
  Model mean_;
  std::int64_t steps_ = 0;
};

Scenario scenario_of(const std::string& strategy, int workers, const Network& network,
                     std::int64_t steps, const SgdOptions& options = {}) {
  Scenario scenario = hand_scenario(workers, network, hand_profile(1, 10ms, 20ms), steps);
  scenario.strategy = strategy;
  scenario.learning_rate = LearningRate(kRate, Schedule{});
  scenario.optimizer = sgd(options);
  return scenario;
}

const SgdOptions kOptimizers[] = {SgdOptions{}, {0.5, 0.01, false}, {0.5, 0, true}};

TEST(Lasgd, HasTheBitsOfTheSerialRecursion) {
  // A ring of four makes six messages after each other: nothing, or two and a half steps.
  for (const auto& [latency, in_flight] : {std::pair{Duration(0), 1}, {Duration(12500us), 3}})
    for (const SgdOptions& options : kOptimizers) {
      Kept kept(quadratic(4));
      const Report report =
          simulate(scenario_of("lasgd", 4, plain_network(1e21, latency), 20, options), &kept);
      ASSERT_TRUE(report.completed());
      EXPECT_EQ(report.observations.back().consensus, 0);
      const auto twin = quadratic(4);
      EXPECT_EQ(kept.last, Serial(*twin, 4, options).run_lasgd(20, in_flight));
    }
}

TEST(Local, HasTheBitsOfTheSerialRecursion) {
  for (const SgdOptions& options : kOptimizers) {
    Scenario scenario = scenario_of("local", 4, plain_network(1e6, 3ms), 20, options);
    scenario.strategy_settings = {{"period", "3"}};
    scenario.speeds = {1, 2, 3, 1};  // who is faster waits, and makes no more steps
    Kept kept(quadratic(4));
    const Report report = simulate(scenario, &kept);
    EXPECT_EQ(report.observations.back().consensus, 0);
    const auto twin = quadratic(4);
    EXPECT_EQ(kept.last, Serial(*twin, 4, options).run_local(20, 3));
    EXPECT_EQ(report.workers[1].strategy["steps_between_merges"], Json({{"3", 7}}));
  }
}

TEST(OuterMomentum, HasTheBitsOfTheSerialRecursion) {
  for (const float momentum : {0.5F, 0.9F})
    for (const SgdOptions& options : kOptimizers) {
      const std::map<std::string, std::string> settings{
          {"outer_momentum", fmt::format("{}", momentum)}};
      Scenario lasgd = scenario_of("lasgd", 4, plain_network(1e21, 12500us), 20, options);
      lasgd.strategy_settings = settings;
      Kept kept(quadratic(4));
      ASSERT_TRUE(simulate(lasgd, &kept).completed());
      const auto twin = quadratic(4);
      EXPECT_EQ(kept.last, Serial(*twin, 4, options, kRate, momentum).run_lasgd(20, 3));

      Scenario local = scenario_of("local", 4, plain_network(1e6, 3ms), 20, options);
      local.strategy_settings = settings;
      local.strategy_settings["period"] = "3";
      Kept kept_local(quadratic(4));
      ASSERT_TRUE(simulate(local, &kept_local).completed());
      const auto twin_local = quadratic(4);
      EXPECT_EQ(kept_local.last, Serial(*twin_local, 4, options, kRate, momentum).run_local(20, 3));
    }
}

// f(x) = x²/2 on every worker, from 1.
class Bowl final : public Objective {
 public:
  std::unique_ptr<Replica> replica(int) override { return std::make_unique<Own>(); }
  std::optional<Quality> evaluate(Span) override { return {}; }

 private:
  class Own final : public Replica {
   public:
    Own() : arena_({{"x", 40}}, allocate_on_heap) {
      for (float& x : arena_.parameters().host()) x = 1;
    }
    Arena& arena() override { return arena_; }
    void gradient(std::int64_t) override {
      for (std::size_t i = 0; i < arena_.size(); ++i)
        arena_.gradients().host()[i] += arena_.parameters().host()[i];
    }
    double loss() const override { return 0; }

   private:
    Arena arena_;
  };
};

// Where all workers have the same gradient: after the first round, of which nothing is known yet.
TEST(OuterMomentum, WithAStepToARoundIsNesterovsMomentum) {
  constexpr double kMomentum = 0.8, kSmall = 0.01;
  Scenario scenario = scenario_of("local", 3, free_network(), 30);
  scenario.learning_rate = LearningRate(kSmall, Schedule{});
  scenario.strategy_settings = {{"period", "1"}, {"outer_momentum", "0.8"}};
  Kept bowl(std::make_unique<Bowl>());
  ASSERT_TRUE(simulate(scenario, &bowl).completed());
  double x = 1 - kSmall, buffer = 0;
  for (int step = 1; step < 30; ++step) {
    buffer = kMomentum * buffer + x;
    x -= kSmall * (x + kMomentum * buffer);
  }
  for (std::size_t i = 0; i < 40; ++i) EXPECT_NEAR(bowl.last[i], x, 1e-5);
}

// Worker r's gradient is −(r + 1) everywhere, and every model starts at r. Looks at all models.
class Constant final : public Objective {
 public:
  std::unique_ptr<Replica> replica(int rank) override {
    auto made = std::make_unique<Own>(rank);
    arenas.push_back(&made->arena());
    return made;
  }
  std::optional<Quality> evaluate(Span) override {
    models.clear();
    for (Arena* arena : arenas) models.push_back(values_of(arena->parameters()));
    extra_planes = arenas.front()->extra_planes();
    return {};
  }
  std::vector<Arena*> arenas;
  std::vector<Model> models;
  std::size_t extra_planes = 0;

 private:
  class Own final : public Replica {
   public:
    explicit Own(int rank)
        : arena_({{"x", 40}}, allocate_on_heap), slope_(-1 - static_cast<float>(rank)) {
      for (float& x : arena_.parameters().host()) x = static_cast<float>(rank);
    }
    Arena& arena() override { return arena_; }
    void gradient(std::int64_t) override {
      for (float& g : arena_.gradients().host()) g += slope_;
    }
    double loss() const override { return 0; }

   private:
    Arena arena_;
    float slope_;
  };
};

// All values are short binary fractions, so sums and means are exact: whatever the merges did, in
// flight or not, the mean is what all local steps have made of it, bit for bit.
TEST(Lasgd, MergesLeaveTheSumOfTheModelsAndLoseNoStep) {
  for (const char* strategy : {"lasgd", "local"}) {
    Scenario scenario = scenario_of(strategy, 4, plain_network(1e21, 9ms), 12);
    scenario.strategy_settings = {{"period", "3"}};
    scenario.speeds = {1, 1, 2, 4};
    scenario.learning_rate = LearningRate(0.5, Schedule{});
    Constant constant;
    const Report report = simulate(scenario, &constant);
    ASSERT_TRUE(report.completed());
    EXPECT_GE(report.workers[0].strategy["rounds"], 3);
    double sum = 0 + 1 + 2 + 3;
    for (std::size_t r = 0; r < 4; ++r)
      sum +=
          0.5 * static_cast<double>(r + 1) * static_cast<double>(report.workers[r].figures.steps);
    for (const Model& model : constant.models)
      for (const float value : model) EXPECT_EQ(static_cast<double>(value), sum / 4) << strategy;
  }
}

// Where means are rounded: one rounding of a, of a − s and of the sum for each merge of a worker.
TEST(Lasgd, MergesLeaveTheSumOfTheModelsUpToRounding) {
  double before = 0, after = 0, largest = 0;
  const auto twin = make_objective({.name = "consensus", .workers = 5, .seed = 3, .dirichlet = {}});
  for (int r = 0; r < 5; ++r) {
    const auto replica = twin->replica(r);
    for (const float x : replica->arena().parameters().host()) {
      before += static_cast<double>(x);
      largest = std::max(largest, std::abs(static_cast<double>(x)));
    }
  }
  Kept kept(make_objective({.name = "consensus", .workers = 5, .seed = 3, .dirichlet = {}}));
  const Report report = simulate(scenario_of("lasgd", 5, plain_network(1e21, 1ms), 40), &kept);
  EXPECT_EQ(report.observations.back().consensus, 0);
  const double rounds = report.workers[0].strategy["rounds"];
  for (const float x : kept.last) after += 5 * static_cast<double>(x);
  EXPECT_GT(report.observations.front().consensus, 1);
  EXPECT_NEAR(after, before, 8 * 5 * 3 * rounds * largest * 0x1p-24);
}

TEST(Lasgd, TakesTwoPlanesAndLocalOne) {
  const auto planes = [](const std::string& strategy, const std::string& setting) {
    Scenario scenario = scenario_of(strategy, 2, free_network(), 3, {0.9, 0, false});
    if (!setting.empty())
      scenario.strategy_settings[setting] = setting == "outer_momentum" ? "0.5" : "true";
    Constant constant;
    simulate(scenario, &constant);
    return constant.extra_planes;
  };
  EXPECT_EQ(planes("lasgd", ""), 2u);
  EXPECT_EQ(planes("lasgd", "average_momentum"), 3u);
  EXPECT_EQ(planes("local", ""), 1u);
  EXPECT_EQ(planes("lasgd", "outer_momentum"), 4u);
  EXPECT_EQ(planes("local", "outer_momentum"), 3u);
}

TEST(Lasgd, AloneIsPlainSgd) {
  const auto end = [](const std::string& strategy) {
    Scenario scenario = scenario_of(strategy, 1, free_network(), 30, {0.9, 0.01, true});
    if (strategy == "lasgd")
      scenario.strategy_settings = {{"warmup", "64"}, {"average_momentum", "true"}};
    if (strategy != "allreduce") scenario.strategy_settings["outer_momentum"] = "0.9";
    scenario.clip = 0.5;
    Kept kept(quadratic(1));
    EXPECT_TRUE(simulate(scenario, &kept).completed());
    return kept.last;
  };
  EXPECT_EQ(end("lasgd"), end("allreduce"));
  EXPECT_EQ(end("local"), end("allreduce"));
}

// c: what a round takes, in micro-batches of the slowest.
TEST(Lasgd, KeepsEverybodyBusy) {
  for (const double jitter : {0.0, 0.2})
    for (const double c : {0.0, 0.5, 1.0, 2.0}) {
      Scenario scenario = scenario_of("lasgd", 4, network_for(c), 400);
      scenario.speeds = {1, 1, 2, 4};
      scenario.jitter = jitter;
      const Report report = simulate(scenario, nullptr);
      EXPECT_GE(utilisation(scenario, report), 0.95) << "c = " << c << ", jitter " << jitter;
      scenario.strategy = "local";
      EXPECT_LT(utilisation(scenario, simulate(scenario, nullptr)), 0.55) << "c = " << c;
    }
}

// A slow network makes rounds longer, never the steps.
TEST(Lasgd, MakesStepsAtTheWorkersOwnPace) {
  Scenario scenario = scenario_of("lasgd", 4, network_for(3.5), 400);
  scenario.speeds = {1, 1, 2, 4};
  const Report report = simulate(scenario, nullptr);
  const int speeds[] = {1, 1, 2, 4};
  const int expected[] = {5, 5, 10, 20};  // one before a round, four while it is on its way
  for (std::size_t r = 0; r < 4; ++r) {
    EXPECT_NEAR(report.workers[r].strategy["mean_steps_between_merges"], expected[r],
                0.3 * expected[r]);
    for (const Duration step : report.workers[r].figures.iterations)
      EXPECT_EQ(step, Duration(30ms) / speeds[r]) << "rank " << r;
  }
}

TEST(Lasgd, PostsAfterThePeriodInStepsOrTime) {
  for (const auto& [setting, value, expected] :
       {std::tuple{"period", "4", 5}, {"period_ms", "100", 5}, {"period", "1", 2}}) {
    Scenario scenario = scenario_of("lasgd", 3, free_network(), 100);
    scenario.strategy_settings = {{setting, value}};
    const Json steps = simulate(scenario, nullptr).workers[1].strategy["steps_between_merges"];
    EXPECT_EQ(steps.size(), 1u) << steps;
    EXPECT_TRUE(steps.contains(std::to_string(expected))) << steps;
  }
}

TEST(Lasgd, EndsInTheSameRoundEverywhereAndCountsEverySample) {
  for (const char* strategy : {"lasgd", "local"}) {
    Scenario scenario = scenario_of(strategy, 5, plain_network(1e8, 1ms), 100);
    scenario.speeds = {1, 1.3, 2, 3.1, 0.7};
    scenario.jitter = 0.3;
    const auto objective = quadratic(5);
    const Report report = simulate(scenario, objective.get());
    ASSERT_TRUE(report.completed());
    for (const WorkerReport& worker : report.workers)
      EXPECT_EQ(worker.strategy["rounds"], report.workers[0].strategy["rounds"]);
    EXPECT_EQ(report.observations.back().consensus, 0);
    EXPECT_EQ(report.observations.back().samples, report.samples);
    EXPECT_EQ(simulate(scenario, quadratic(5).get()).hash, report.hash);
  }
}

// Both know the mean distance of the models: the strategy from its rounds, the simulation from
// outside.
TEST(Lasgd, KnowsHowFarTheModelsAreApart) {
  Scenario scenario = scenario_of("local", 4, free_network(), 8 * 50);
  scenario.learning_rate = LearningRate(0.05, Schedule{});
  scenario.observe_time = 30ms;
  const auto objective = quadratic(4, 1.0);
  const Report report = simulate(scenario, objective.get());
  double seen = 0;  // just before an average: the largest of eight
  for (std::size_t i = 8; i < report.observations.size(); ++i)
    seen = std::max(seen, report.observations[i].consensus);
  const double known = report.workers[2].strategy["consensus_distance"];
  EXPECT_GT(known, 0.5 * seen);
  EXPECT_LE(known, seen);
  EXPECT_EQ(known, report.workers[0].strategy["consensus_distance"].get<double>());
}

// While it lasts every step is one of synchronous SGD, up to the order of multiplication and sum.
TEST(Lasgd, WarmsUpAsSynchronousSgd) {
  const auto end = [](const std::string& strategy, std::int64_t warmup, std::int64_t steps) {
    Scenario scenario = scenario_of(strategy, 4, plain_network(1e8, 1ms), steps, {0.9, 0, false});
    scenario.clip = 2;
    if (warmup > 0) scenario.strategy_settings["warmup"] = std::to_string(warmup);
    Kept kept(quadratic(4));
    const Report report = simulate(scenario, &kept);
    EXPECT_EQ(report.observations.back().consensus, 0);
    return std::pair{kept.last, report.workers[0].strategy};
  };
  const auto synchronous = end("allreduce", 0, 20).first;
  const auto [warm, figures] = end("lasgd", 4 * kBatch * 20, 20);
  for (std::size_t i = 0; i < warm.size(); ++i)
    EXPECT_NEAR(warm[i], synchronous[i], 1e-5 * std::max(1.0F, std::abs(synchronous[i])));
  EXPECT_EQ(figures["rounds"], 0);
  EXPECT_GT(end("lasgd", 4 * kBatch * 10, 20).second["rounds"], 3);
}

// The experiment: the same rounds, but the mean takes the place of models that have moved on.
TEST(Lasgd, MergingDifferencesBeatsOverwriting) {
  const auto loss = [](bool overwrite) {
    const auto objective = quadratic(4, 0.1, 100);
    Serial serial(*objective, 4, {});
    for (int round = 0; round < 25; ++round) {
      serial.step();
      serial.post();
      for (int i = 0; i < 3; ++i) serial.step();
      overwrite ? serial.overwrite() : serial.merge();
    }
    Model end = serial.average();
    return objective->evaluate({end.data(), end.size()})->loss;
  };
  const double merged = loss(false), overwritten = loss(true);
  RecordProperty("loss_of_merging", std::to_string(merged));
  RecordProperty("loss_of_overwriting", std::to_string(overwritten));
  EXPECT_LT(merged, 0.5 * overwritten) << merged << " and " << overwritten;
}

TEST(Lasgd, LearnsOn64Workers) {
  Scenario scenario = scenario_of("lasgd", 64, plain_network(1e9, 100us), 150, {0.9, 0, false});
  scenario.jitter = 0.2;
  const auto objective =
      make_objective({.name = "logistic", .workers = 64, .seed = 5, .dirichlet = {}});
  const Report report = simulate(scenario, objective.get());
  ASSERT_TRUE(report.completed());
  EXPECT_EQ(report.observations.back().consensus, 0);
  const Quality first = *report.observations.front().quality,
                last = *report.observations.back().quality;
  EXPECT_LT(last.loss, 0.5 * first.loss);
  EXPECT_GT(*last.accuracy, 0.8);
}

TEST(Lasgd, RefusesOptionsThatDoNotFit) {
  EXPECT_THROW(check_strategy("lasgd", {{"period", "2"}, {"period_ms", "5"}}), ConfigError);
  EXPECT_THROW(check_strategy("lasgd", {{"period", "0"}}), ConfigError);
  EXPECT_THROW(check_strategy("local", {{"warmup", "5"}}), ConfigError);
  EXPECT_THROW(check_strategy("local", {{"outer_momentum", "1"}}), ConfigError);
  EXPECT_THROW(check_strategy("lasgd", {{"outer_momentum", "-0.1"}}), ConfigError);
  EXPECT_NO_THROW(check_strategy("lasgd", {{"period_ms", "2.5"}, {"warmup", "100"}}));
}

// Nobody hears of the others' samples between rounds: a period longer than the run must not make it
// endless.
TEST(LocalSteps, EndWhateverThePeriod) {
  for (const char* strategy : {"local", "lasgd"}) {
    Scenario scenario = hand_scenario(4, free_network(), hand_profile(1, 10ms, 20ms), 25);
    scenario.strategy = strategy;
    scenario.strategy_settings = {{"period", "1000000"}};
    scenario.speeds = {1, 1, 2, 4};
    scenario.most_events = 1'000'000;
    const Report report = simulate(scenario, nullptr);
    EXPECT_TRUE(report.completed()) << strategy;
    EXPECT_LT(report.samples, 3 * scenario.samples) << strategy;
  }
}

// A schedule by which the learning rate is the number of samples trained on.
constexpr std::int64_t kRamp = std::int64_t{1} << 20;

// Before each step of a worker, and at last after flush(): where its schedule stood, how many
// samples it had counted, and how many all workers had computed.
struct Stand {
  double schedule;
  std::int64_t counted, computed;
};

Task<> follow(Fabric& fabric, const std::string& name, const StrategyOptions& options,
              Duration pace, int steps, std::int64_t& computed, std::vector<Stand>& stands) {
  toy::Trainer trainer(
      fabric, {{"a", 16}}, name, options,
      {.rate = static_cast<double>(kRamp), .schedule = Schedule{.warmup = kRamp}, .patience = 60s});
  const Worker& worker = trainer.worker;
  const auto look = [&] {
    stands.push_back({worker.learning_rate(), worker.progress.samples, computed});
  };
  for (int step = 0; step < steps; ++step) {
    look();
    co_await trainer.driver.begin(kBatch);
    co_await worker.loop().sleep_for(pace * (8 + (step * 5 + fabric.rank()) % 3) / 9);
    computed += kBatch;
    co_await trainer.driver.end(kBatch);
  }
  co_await trainer.driver.flush();
  look();
}

// Worker r makes steps[r] steps, of `pace` / steps[r] each.
std::vector<std::vector<Stand>> stands_of(const std::string& name, const StrategyOptions& options,
                                          const std::vector<int>& steps, Duration pace) {
  const int size = static_cast<int>(steps.size());
  Cluster cluster(size, plain_network(kByteAtNanosecond, 300us), 1);
  std::int64_t computed = 0;
  std::vector<std::vector<Stand>> stands(steps.size());
  std::vector<Job> jobs;
  for (std::size_t r = 0; r < steps.size(); ++r)
    jobs.push_back(cluster.spawn(static_cast<int>(r),
                                 follow(cluster.fabric(static_cast<int>(r)), name, options,
                                        pace / steps[r], steps[r], computed, stands[r])));
  run_until_idle(cluster);
  for (const Job& job : jobs) {
    EXPECT_TRUE(job.done());
    job.rethrow();
  }
  return stands;
}

// Between merges, too, of which there are few.
TEST(LocalSteps, TheScheduleMovesOnWithEveryStep) {
  for (const char* name : {"local", "lasgd"})
    for (const char* period : {"50", "1", "1000"})
      for (const auto& worker : stands_of(name, {{"period", period}}, {120, 120, 120, 120}, 1s))
        for (std::size_t step = 0; step < worker.size(); ++step)
          EXPECT_EQ(worker[step].schedule, static_cast<double>(step * 4 * kBatch))
              << name << ", period " << period;
}

// A fast worker learns from its rounds how little the others do meanwhile, and a slow one how much.
TEST(LocalSteps, TheScheduleNeverGoesBackAndFollowsWhatAllCompute) {
  for (const int period : {5, 40}) {
    const auto all =
        stands_of("lasgd", {{"period", std::to_string(period)}}, {1000, 1000, 2000, 4000}, 20s);
    for (const auto& worker : all) {
      EXPECT_EQ(worker.back().schedule, 8000 * kBatch);
      for (std::size_t i = 1; i + 1 < worker.size(); ++i) {
        EXPECT_GE(worker[i].schedule, worker[i - 1].schedule) << "step " << i;
        EXPECT_GE(worker[i].schedule, worker[i].counted);
        const auto computed = static_cast<double>(worker[i].computed);
        // What the others had computed before a merge and sent only afterwards is less than a
        // round, of `period` steps of the slowest. Before the second merge nobody knows how fast
        // they are: the fastest takes them to be as fast as itself, which is twice what they all
        // compute.
        if (worker[i].counted > 1500 * kBatch) {
          EXPECT_NEAR(worker[i].schedule, computed, 8 * period * kBatch) << "step " << i;
        } else {
          EXPECT_LE(worker[i].schedule, 2 * computed + 8 * kBatch) << "step " << i;
        }
      }
    }
  }
}

// Memory without contents is no reason to take one strategy for the other: rounds are on their way
// while steps are made, and flush() ends when all are counted.
TEST(TimeOnly, LasgdCountsEverySampleAndLocalToo) {
  for (const char* strategy : {"lasgd", "local"}) {
    Scenario scenario =
        hand_scenario(3, plain_network(kByteAtNanosecond, 20us), hand_profile(2, 200us, 300us), 20);
    scenario.strategy = strategy;
    scenario.speeds = {1, 1.7, 3.1};
    const Report report = simulate(scenario, nullptr);
    ASSERT_TRUE(report.completed()) << strategy;
    std::int64_t computed = 0;
    for (const WorkerReport& worker : report.workers) computed += worker.figures.samples;
    EXPECT_EQ(report.samples, computed) << strategy;
  }
}

}  // namespace
}  // namespace skein::sim
