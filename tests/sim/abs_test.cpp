// abs against a serial reference of its recursion, closed forms of its schedule, and the limits of
// its stability.
#include "strategy/abs.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>

#include "kernels/kernels.h"
#include "optimize/sgd.h"
#include "sim/references.h"
#include "skein/error.h"
#include "strategy/registry.h"
#include "toy/trainer.h"

namespace skein::sim {
namespace {

using namespace std::chrono_literals;
using Json = nlohmann::json;

// What one process computes that knows who took which part in which round.
class Serial {
 public:
  // With `ahead` each worker computes where its own part of the round on its way, times as much as
  // that says, would take the weights.
  using Ahead = std::function<double(std::size_t rank)>;
  Serial(Objective& objective, int workers, SgdOptions options, double rate, Ahead ahead = nullptr)
      : options_(options), rate_(rate), ahead_(std::move(ahead)) {
    for (int rank = 0; rank < workers; ++rank) replicas_.push_back(objective.replica(rank));
    optimizer_ = std::make_unique<Sgd>(arena().size(), options);
    weights_.assign(arena().parameters().host().begin(), arena().parameters().host().end());
  }

  Arena& arena() { return replicas_.front()->arena(); }

  // One round in which worker r computes counts[r] micro-batches at the present weights; then the
  // sum of the round before is applied.
  void round(const std::vector<int>& counts) {
    std::vector<std::vector<float>> parts;
    std::int64_t samples = 0;
    for (std::size_t r = 0; r < replicas_.size(); ++r) {
      parts.push_back(gathered(*replicas_[r], counts[r]));
      samples += counts[r] * kBatch;
    }
    auto fresh = ring_sum(parts);
    if (!sum_.empty()) apply();
    sum_ = std::move(fresh);
    samples_ = samples;
    if (ahead_)
      for (std::size_t r = 0; r < replicas_.size(); ++r) look_ahead(r, parts[r], counts[r]);
  }

  void apply() {
    const Span gradients = arena().gradients();
    std::copy(sum_.begin(), sum_.end(), gradients.host().data());
    std::copy(weights_.begin(), weights_.end(), arena().parameters().host().data());
    const UpdateContext context{
        .learning_rate = rate_,
        .gradient_scale = static_cast<float>(1 / static_cast<double>(samples_)),
        .step = ++step_};
    optimizer_->update({0, arena().size()}, arena().parameters(), gradients, context);
    weights_.assign(arena().parameters().host().begin(), arena().parameters().host().end());
    for (std::size_t r = 1; r < replicas_.size(); ++r)
      std::copy(arena().parameters().host().begin(), arena().parameters().host().end(),
                replicas_[r]->arena().parameters().host().data());
    sum_.clear();
  }

 private:
  // A step of another optimizer that has a copy of the state.
  void look_ahead(std::size_t rank, std::vector<float> part, int count) {
    Sgd twin(arena().size(), options_);
    for (const auto& [name, vector] : optimizer_->state())
      std::copy(vector.host().begin(), vector.host().end(), twin.state().at(name).host().data());
    const Arena& own = replicas_[rank]->arena();
    std::copy(weights_.begin(), weights_.end(), own.parameters().host().data());
    const UpdateContext context{
        .learning_rate = rate_,
        .gradient_scale = static_cast<float>(ahead_(rank) / static_cast<double>(count * kBatch)),
        .step = step_ + 1};
    twin.update({0, part.size()}, own.parameters(), {part.data(), part.size()}, context);
  }

  static std::vector<float> gathered(Replica& replica, int count) {
    for (int i = 0; i < count; ++i) replica.gradient(kBatch);
    std::vector<float> part;
    for (float& value : replica.arena().gradients().host()) {
      part.push_back(value * static_cast<float>(kBatch));
      value = 0;
    }
    return part;
  }

  SgdOptions options_;
  double rate_;
  Ahead ahead_;
  std::vector<std::unique_ptr<Replica>> replicas_;
  std::unique_ptr<Sgd> optimizer_;
  std::vector<float> weights_;
  std::vector<float> sum_;
  std::int64_t samples_ = 0, step_ = 0;
};

// With the paper's delay, unless a test says otherwise.
Scenario abs_scenario(int workers, const Network& network, std::int64_t samples) {
  Scenario scenario = hand_scenario(workers, network, hand_profile(1, 10ms, 20ms), 1);
  scenario.strategy = "abs";
  scenario.strategy_settings = {{"delay", "1"}};
  scenario.samples = samples;
  return scenario;
}

TEST(Abs, HasTheBitsOfTheSerialRecursion) {
  for (const auto& options :
       {SgdOptions{}, SgdOptions{0.5, 0.01, false}, SgdOptions{0.5, 0, true}}) {
    Scenario scenario = abs_scenario(4, free_network(), 0);
    scenario.strategy_settings["lookahead"] = "none";
    scenario.speeds = {1, 1, 2, 4};
    scenario.samples = 20 * 8 * kBatch;
    scenario.learning_rate = LearningRate(0.05, Schedule{});
    scenario.optimizer = sgd(options);
    Kept kept(quadratic(4));
    const Report report = simulate(scenario, &kept);
    ASSERT_TRUE(report.completed());
    // The first round has one micro-batch of each: nobody has anything to wait for.
    const auto twin = quadratic(4);
    Serial serial(*twin, 4, options, 0.05);
    serial.round({1, 1, 1, 1});
    const std::int64_t rounds = report.workers[0].strategy["rounds"];
    for (std::int64_t k = 1; k < rounds; ++k) serial.round({1, 1, 2, 4});
    serial.apply();
    EXPECT_EQ(report.observations.back().consensus, 0);
    EXPECT_EQ(kept.last, std::vector<float>(serial.arena().parameters().host().begin(),
                                            serial.arena().parameters().host().end()));
  }
}

TEST(AbsLookahead, HasTheBitsOfTheSerialRecursion) {
  const std::map<std::string, Serial::Ahead> kinds{{"own", [](std::size_t) { return 1.0; }},
                                                   {"momentum", [](std::size_t) { return 0.0; }},
                                                   {"share", [](std::size_t) { return 0.25; }}};
  for (const auto& [kind, ahead] : kinds)
    for (const auto& options : {SgdOptions{0.9, 0.01, false}, SgdOptions{0.5, 0, true}}) {
      SCOPED_TRACE(kind);
      Scenario scenario = abs_scenario(4, free_network(), 20 * 8 * kBatch);
      scenario.speeds = {1, 1, 2, 4};
      scenario.strategy_settings["lookahead"] = kind;
      scenario.learning_rate = LearningRate(0.05, Schedule{});
      scenario.optimizer = sgd(options);
      Kept kept(quadratic(4));
      const Report report = simulate(scenario, &kept);
      ASSERT_TRUE(report.completed());
      const auto twin = quadratic(4);
      Serial serial(*twin, 4, options, 0.05, ahead);
      serial.round({1, 1, 1, 1});
      const std::int64_t rounds = report.workers[0].strategy["rounds"];
      for (int round = 1; round < rounds; ++round) serial.round({1, 1, 2, 4});
      serial.apply();
      EXPECT_EQ(report.observations.back().consensus, 0);
      EXPECT_EQ(kept.last, std::vector<float>(serial.arena().parameters().host().begin(),
                                              serial.arena().parameters().host().end()));
    }
}

TEST(Abs, TakesWhatEachWorkerManagesWhileASumIsOnItsWay) {
  Scenario scenario = abs_scenario(4, free_network(), 100 * 8 * kBatch);
  scenario.speeds = {1, 1, 2, 4};
  const Report report = simulate(scenario, nullptr);
  const int expected[] = {1, 1, 2, 4};
  for (std::size_t r = 0; r < 4; ++r) {
    const Json& figures = report.workers[r].strategy;
    EXPECT_NEAR(figures["mean_micro_batches_per_round"], expected[r], 0.05) << "rank " << r;
    EXPECT_EQ(figures["staleness"].size(), 1u) << figures["staleness"];
    EXPECT_EQ(figures["staleness"]["1"], figures["round_samples"]["64"].get<int>() + 1);
    EXPECT_GT(static_cast<double>(report.workers[r].figures.busy.count()),
              0.98 * static_cast<double>(report.time.count()));
  }
}

// c: what a sum takes, in micro-batches of the slowest.
TEST(Abs, KeepsEverybodyBusy) {
  for (const double jitter : {0.0, 0.2})
    for (const double c : {0.0, 0.5, 1.0, 2.0}) {
      Scenario scenario = abs_scenario(4, network_for(c), 200 * 8 * kBatch);
      scenario.speeds = {1, 1, 2, 4};
      scenario.jitter = jitter;
      EXPECT_GE(utilisation(scenario, simulate(scenario, nullptr)), 0.95)
          << "c = " << c << ", jitter " << jitter;
    }
}

// H (1 + rho) with H = S / (N s_min): 2 at c = 0 and 3 at half the slowest micro-batch.
TEST(Abs, OutpacesSynchronousSgdAsTheClosedFormSays) {
  for (const auto& [c, gain] : {std::pair{0.0, 2.0}, {0.5, 3.0}}) {
    Scenario scenario = abs_scenario(4, network_for(c), 200 * 8 * kBatch);
    scenario.speeds = {1, 1, 2, 4};
    const double abs = simulate(scenario, nullptr).samples_per_second;
    scenario.strategy_settings["delay"] = "auto";  // may lose 4 % by doing without a delay
    const double automatic = simulate(scenario, nullptr).samples_per_second;
    scenario.strategy = "allreduce";
    scenario.strategy_settings.clear();
    const double sync = simulate(scenario, nullptr).samples_per_second;
    EXPECT_NEAR(abs / sync, gain, 0.02 * gain) << "c = " << c;
    EXPECT_NEAR(automatic / sync, gain, 0.04 * gain) << "c = " << c;
  }
}

// Workers with minima of their own: what all converge to is the minimum over all samples computed,
// not the mean of the workers' means.
TEST(Abs, WeighsEverySampleTheSame) {
  const auto objective = [] {
    return make_objective({.name = "quadratic",
                           .workers = 2,
                           .seed = 7,
                           .condition = 1,
                           .noise = 0,
                           .skew = 1,
                           .dirichlet = {}});
  };
  Scenario scenario = abs_scenario(2, free_network(), 4 * kBatch * 100);
  scenario.speeds = {1, 3};
  scenario.learning_rate = LearningRate(0.25, Schedule{});
  Kept kept(objective());
  ASSERT_TRUE(simulate(scenario, &kept).completed());
  const auto twin = objective();
  const auto first = twin->replica(0), second = twin->replica(1);
  first->gradient(1);
  second->gradient(1);
  for (std::size_t i = 0; i < kept.last.size(); ++i)
    EXPECT_NEAR(
        kept.last[i],
        -(first->arena().gradients().host()[i] + 3 * second->arena().gradients().host()[i]) / 4,
        1e-5);
}

// Whether the delayed recursion converges on a quadratic of curvature 1.
bool stable(double rate, const SgdOptions& options, const std::string& lookahead, int workers) {
  Scenario scenario = abs_scenario(workers, free_network(), workers * kBatch * 3000);
  scenario.strategy_settings["lookahead"] = lookahead;
  scenario.learning_rate = LearningRate(rate, Schedule{});
  scenario.optimizer = sgd(options);
  const auto objective = make_objective({.name = "quadratic",
                                         .workers = workers,
                                         .seed = 3,
                                         .dimension = 1,
                                         .condition = 1,
                                         .noise = 0,
                                         .dirichlet = {}});
  const Report report = simulate(scenario, objective.get());
  return report.observations.back().quality->loss < report.observations.front().quality->loss;
}

double limit(const SgdOptions& options, double low, double high,
             const std::string& lookahead = "none", int workers = 2) {
  while (high / low > 1.002)
    (stable(std::sqrt(low * high), options, lookahead, workers) ? low : high) =
        std::sqrt(low * high);
  return std::sqrt(low * high);
}

TEST(Abs, IsStableUpToTheKnownLimits) {
  EXPECT_NEAR(limit({}, 0.5, 2), 1.0, 0.02);
  EXPECT_NEAR(limit({0.9, 0, false}, 0.02, 0.5), 0.1, 0.002);
  EXPECT_NEAR(limit({0.5, 0, false}, 0.1, 2), 0.5, 0.01);
  EXPECT_NEAR(limit({0.9, 0, true}, 0.05, 1), 0.25, 0.005);
}

// Where all workers see the same curvature a look ahead is exactly the next model, and rates are
// stable as far as without delay: 2 (1 + momentum) over the curvature.
TEST(AbsLookahead, IsStableAsFarAsWithoutDelay) {
  EXPECT_NEAR(limit({}, 0.5, 4, "own"), 2.0, 0.04);
  EXPECT_NEAR(limit({0.9, 0, false}, 0.1, 8, "own"), 3.8, 0.08);
  EXPECT_NEAR(limit({0.5, 0, false}, 0.1, 6, "own"), 3.0, 0.06);
}

// With s = 1/N of the own gradient and rate · curvature a: z² + (a s − 1) z + a (1 − s) has its
// roots in the unit circle up to a = 1 / (1 − s), where s is at most 2/3.
TEST(AbsLookahead, OfAShareIsStableUpToTheKnownLimits) {
  EXPECT_NEAR(limit({}, 0.5, 4, "share", 2), 2.0, 0.04);
  EXPECT_NEAR(limit({}, 0.5, 4, "share", 3), 1.5, 0.03);
  EXPECT_NEAR(limit({}, 0.5, 4, "share", 5), 1.25, 0.025);
}

// With a momentum all of the own gradient, without one the share; squares of gradients are none.
TEST(AbsLookahead, LooksByItselfAtWhatSuitsTheOptimizer) {
  const auto end = [](const SgdOptions& options, const std::string& lookahead) {
    Scenario scenario = abs_scenario(4, free_network(), 20 * 8 * kBatch);
    scenario.speeds = {1, 1, 2, 4};
    if (!lookahead.empty()) scenario.strategy_settings["lookahead"] = lookahead;
    scenario.learning_rate = LearningRate(0.05, Schedule{});
    scenario.optimizer = sgd(options);
    Kept kept(quadratic(4));
    EXPECT_TRUE(simulate(scenario, &kept).completed());
    return kept.last;
  };
  for (const char* given : {"", "auto"}) {
    const SgdOptions with{0.9, 0, false}, without;
    EXPECT_EQ(end(with, given), end(with, "own"));
    EXPECT_NE(end(with, given), end(with, "share"));
    EXPECT_EQ(end(without, given), end(without, "share"));
    EXPECT_NE(end(without, given), end(without, "own"));
  }
  for (const char* squares : {"exp_avg_sq", "square_avg", "sum"})
    EXPECT_TRUE(holds_squares(squares));
  for (const char* others : {"momentum", "momentum_buffer", "exp_avg", "grad_avg"})
    EXPECT_FALSE(holds_squares(others)) << others;
}

using BeforeUpdate = std::function<Task<>(AveragedGradients&)>;
using AfterStep = std::function<void(Strategy&, Arena&, int step)>;

// Trains (x − rank)²/2, times `factor`, from 1, and leaves the model that all have at the end.
Task<> train_bowl(Fabric& fabric, float factor, const BeforeUpdate& before_update,
                  const AfterStep& after_step, std::vector<float>& model) {
  toy::Trainer trainer(fabric, {{"x", 40}}, "abs", {{"delay", "1"}},
                       {.rate = 0.05, .momentum = 0.9, .patience = 60s});
  trainer.worker.before_update = before_update;
  const Span x = trainer.arena.parameters(), gradients = trainer.arena.gradients();
  fill(x, 1);
  for (int step = 0; step < 30; ++step) {
    co_await trainer.driver.begin(kBatch);
    fill(gradients, static_cast<float>(-fabric.rank()));
    add(gradients, x);
    scale(gradients, factor);
    co_await fabric.loop().sleep_for(1ms * (1 + fabric.rank()));
    co_await trainer.driver.end(kBatch);
    if (after_step) after_step(*trainer.strategy, trainer.arena, step);
  }
  co_await trainer.driver.flush();
  model.assign(x.host().begin(), x.host().end());
}

std::vector<float> trained_bowl(float factor, const BeforeUpdate& before_update,
                                const AfterStep& after_step = nullptr) {
  Cluster cluster(3, free_network(), 1);
  std::vector<std::vector<float>> models(3);
  std::vector<Job> jobs;
  for (int rank = 0; rank < 3; ++rank)
    jobs.push_back(
        cluster.spawn(rank, train_bowl(cluster.fabric(rank), factor, before_update, after_step,
                                       models[static_cast<std::size_t>(rank)])));
  run_until_idle(cluster);
  for (const Job& job : jobs) {
    if (!job.done()) throw Error("hangs");
    job.rethrow();
  }
  EXPECT_EQ(models[1], models[0]);
  EXPECT_EQ(models[2], models[0]);
  return models[0];
}

// Gradients that before_update() divides by a power of two give the bits of those that are not so
// large: in the weights, and so in every look ahead.
TEST(AbsLookahead, IsScaledAndClippedAsTheLastUpdateWas) {
  const BeforeUpdate leave = [](AveragedGradients&) -> Task<> { co_return; };
  const BeforeUpdate divide = [](AveragedGradients& g) -> Task<> {
    g.scale(1.0 / 1024);
    co_return;
  };
  EXPECT_EQ(trained_bowl(1024, divide), trained_bowl(1, leave));
  const BeforeUpdate clip = [](AveragedGradients& g) -> Task<> {
    g.clip(0.25);
    co_return;
  };
  const BeforeUpdate divide_and_clip = [](AveragedGradients& g) -> Task<> {
    g.scale(1.0 / 1024);
    g.clip(0.25);
    co_return;
  };
  EXPECT_EQ(trained_bowl(1024, divide_and_clip), trained_bowl(1, clip));
  EXPECT_NE(trained_bowl(1, clip), trained_bowl(1, leave));
}

TEST(AbsLookahead, IsNotMadeWhereTheNextUpdateCannotBeForeseen) {
  int ahead = 0;
  const AfterStep count = [&](Strategy& strategy, Arena&, int) {
    ahead += strategy.replicas_differ() ? 1 : 0;
  };
  trained_bowl(1, nullptr, count);
  EXPECT_EQ(std::exchange(ahead, 0), 90) << "it is made after every step of each worker";
  const BeforeUpdate leave = [](AveragedGradients&) -> Task<> { co_return; };
  trained_bowl(1, leave, count);
  EXPECT_GT(std::exchange(ahead, 0), 80) << "but for the first, of which nothing is known yet";
  const BeforeUpdate skip = [](AveragedGradients& g) -> Task<> {
    g.skip();
    co_return;
  };
  trained_bowl(1, skip, count);
  EXPECT_EQ(std::exchange(ahead, 0), 0) << "after a skipped update";
  struct NoElements final : AveragedGradients::Source {
    void visit(double, const std::function<void(const GradientPiece&)>&) override {}
    double norm() override { return 1; }
  };
  NoElements source;
  const BeforeUpdate change = [&](AveragedGradients& g) -> Task<> {
    g.set_source(&source);
    g.each([](const GradientPiece&) {});
    co_return;
  };
  trained_bowl(1, change, count);
  EXPECT_EQ(std::exchange(ahead, 0), 0) << "after elements were changed one by one";
}

// Whatever it is, and on however many workers.
TEST(AbsLookahead, AWriteToParametersThatAreAheadIsRefused) {
  const std::map<std::string, std::function<void(Span)>> writes{
      {"one element", [](Span x) { x.host()[7] += 1e-3F; }},
      {"other signs", [](Span x) { scale(x, -1); }},
      {"not a number", [](Span x) { x.host()[0] = NAN; }},
      {"clamped", [](Span x) {
         for (float& value : x.host()) value = std::min(value, 0.5F);
       }}};
  for (const auto& [what, write] : writes)
    for (const int at : {3, 29}) {
      std::string said;
      try {
        trained_bowl(1, nullptr, [&](Strategy&, Arena& arena, int step) {
          if (step == at) write(arena.parameters());
        });
      } catch (const ConfigError& error) {
        said = error.what();
      }
      EXPECT_NE(said.find("Expected flush() before it"), std::string::npos)
          << what << " after step " << at << ": " << said;
    }
}

TEST(Abs, WaitsWhenAWorkerHasAsManyMicroBatchesAsAllowed) {
  Scenario scenario =
      abs_scenario(2, plain_network(kLayerElements * 4 / 300e-3, 0ms), 20 * 8 * kBatch);
  scenario.strategy_settings["max_micro_batches"] = "3";
  const Report report = simulate(scenario, nullptr);
  EXPECT_TRUE(report.completed());
  for (const WorkerReport& worker : report.workers) {
    EXPECT_FALSE(worker.strategy["micro_batches_per_round"].contains("4"));
    EXPECT_GT(worker.figures.exposed, report.time / 2);
  }
}

// Without a delay a worker computes as long as the slowest does, and the sum is applied at once.
TEST(AbsDelay, NoneHasTheBitsOfTheSerialRecursion) {
  for (const auto& options : {SgdOptions{}, SgdOptions{0.9, 0.01, false}}) {
    Scenario scenario = abs_scenario(4, network_for(0.5), 20 * 8 * kBatch);
    scenario.speeds = {1, 1, 2, 4};
    scenario.strategy_settings = {{"delay", "0"}};
    scenario.learning_rate = LearningRate(0.05, Schedule{});
    scenario.optimizer = sgd(options);
    Kept kept(quadratic(4));
    const Report report = simulate(scenario, &kept);
    ASSERT_TRUE(report.completed());
    const auto twin = quadratic(4);
    Serial serial(*twin, 4, options, 0.05);
    // Nobody knows in the first round how long the slowest takes.
    const Json& sizes = report.workers[0].strategy["round_samples"];
    ASSERT_EQ(sizes.size(), 2u) << sizes;
    serial.round({1, 1, 1, 1});
    serial.apply();
    for (int k = 0; k < sizes.at(std::to_string(8 * kBatch)).get<int>(); ++k) {
      serial.round({1, 1, 2, 4});
      serial.apply();
    }
    EXPECT_EQ(report.workers[0].strategy["staleness"].size(), 1u);
    EXPECT_TRUE(report.workers[0].strategy["staleness"].contains("0"));
    EXPECT_EQ(report.observations.back().consensus, 0);
    EXPECT_EQ(kept.last, std::vector<float>(serial.arena().parameters().host().begin(),
                                            serial.arena().parameters().host().end()));
  }
}

// What part of the updates was one round old, and how much of the workers' time was used.
std::pair<double, double> delayed_and_used(const Network& network, double jitter,
                                           const std::vector<double>& speeds = {1, 1, 2, 4}) {
  Scenario scenario = abs_scenario(4, network, 600 * 8 * kBatch);
  scenario.speeds = speeds;
  scenario.jitter = jitter;
  scenario.strategy_settings = {{"delay", "auto"}};
  const Report report = simulate(scenario, nullptr);
  EXPECT_TRUE(report.completed());
  const Json& ages = report.workers[0].strategy["staleness"];
  for (const WorkerReport& each : report.workers) EXPECT_EQ(each.strategy["staleness"], ages);
  const double late = ages.value("1", 0), all = late + ages.value("0", 0);
  return {late / all, utilisation(scenario, report)};
}

// After the eleven rounds that it takes to know, and the one that is on its way then.
TEST(AbsDelay, AutoGoesWithoutWhereNobodyWaitsMuch) {
  for (const auto& network : {free_network(), network_for(0.02)})
    for (const auto& speeds : {std::vector<double>{1, 1, 2, 4}, {1, 1, 1, 1}, {1, 1, 1, 3}}) {
      const auto [late, used] = delayed_and_used(network, 0, speeds);
      EXPECT_LE(late, 12.5 / 600);
      EXPECT_GE(used, 0.96);
    }
}

// What it is when nothing is said.
TEST(AbsDelay, IsAutoByItself) {
  Scenario scenario = abs_scenario(4, free_network(), 40 * 4 * kBatch);
  const auto ages = [&](const std::string& delay) {
    scenario.strategy_settings.clear();
    if (!delay.empty()) scenario.strategy_settings["delay"] = delay;
    return simulate(scenario, nullptr).workers[0].strategy["staleness"];
  };
  EXPECT_EQ(ages(""), ages("auto"));
  EXPECT_GT(ages("").value("0", 0), 20);
  EXPECT_GT(ages("").value("1", 0), 5);
  EXPECT_EQ(ages("1").value("0", 0), 0);
}

TEST(AbsDelay, AutoHidesWhatIsWorthHiding) {
  for (const double c : {0.2, 1.0}) {
    const auto [late, used] = delayed_and_used(network_for(c), 0);
    EXPECT_GE(late, 0.9) << "c = " << c;
    EXPECT_GE(used, 0.95) << "c = " << c;
  }
  // Sums that come at once, and workers that would wait for each other all the same.
  for (const auto& [jitter, speeds] :
       {std::pair{0.2, std::vector<double>{1, 1, 2, 4}}, {0.0, {1, 1.6, 1.6, 1.6}}}) {
    const auto [late, used] = delayed_and_used(free_network(), jitter, speeds);
    EXPECT_GE(late, 0.85) << "jitter " << jitter;
    EXPECT_GE(used, 0.95) << "jitter " << jitter;
  }
}

// Speeds that change turn the delay on and off: all workers do so after the same round.
TEST(AbsDelay, AutoTurnsOnAllWorkersAtOnce) {
  Scenario scenario = abs_scenario(4, plain_network(1e9, 10us), 3000 * 4 * kBatch);
  scenario.slowdowns = {.every = 4s, .lasting = 2s, .factor = 3};
  scenario.strategy_settings = {{"delay", "auto"}};
  const auto objective = quadratic(4);
  const Report report = simulate(scenario, objective.get());
  ASSERT_TRUE(report.completed());
  EXPECT_EQ(report.observations.back().consensus, 0);
  const Json& ages = report.workers[0].strategy["staleness"];
  EXPECT_GT(ages.value("0", 0), 20) << ages;
  EXPECT_GT(ages.value("1", 0), 20) << ages;
  for (const WorkerReport& each : report.workers) EXPECT_EQ(each.strategy["staleness"], ages);
}

// Without delay a round is a step of synchronous SGD, and stable twice as far.
TEST(Abs, WarmsUpWithoutDelay) {
  Scenario scenario = abs_scenario(2, free_network(), 2 * kBatch * 50);
  scenario.strategy_settings["warmup_rounds"] = "1000";
  scenario.learning_rate = LearningRate(1.5, Schedule{});
  const auto objective = quadratic(2, 0, 1);
  const Report report = simulate(scenario, objective.get());
  EXPECT_LT(report.observations.back().quality->loss, 1e-6);
  EXPECT_EQ(report.workers[0].strategy["staleness"], Json({{"0", 50}}));
}

TEST(Abs, ScalesTheRateByTheSamplesOfARound) {
  const auto end = [](const std::string& scaling, double rate) {
    Scenario scenario = abs_scenario(2, free_network(), 2 * kBatch * 10);
    scenario.learning_rate = LearningRate(rate, Schedule{});
    scenario.strategy_settings["lr_scaling"] = scaling;
    if (scaling != "none")
      scenario.strategy_settings["reference_batch"] = std::to_string(kBatch / 2);
    Kept kept(quadratic(2, 0));
    EXPECT_TRUE(simulate(scenario, &kept).completed());
    return kept.last;
  };
  EXPECT_EQ(end("linear", 0.125), end("none", 0.5));  // a round has 4 times the reference
  EXPECT_EQ(end("sqrt", 0.25), end("none", 0.5));
}

TEST(Abs, AloneIsPlainSgd) {
  const auto end = [](const std::string& strategy) {
    Scenario scenario = abs_scenario(1, free_network(), kBatch * 30);
    scenario.strategy = strategy;
    scenario.strategy_settings.clear();
    scenario.clip = 0.5;
    scenario.optimizer = sgd({0.9, 0.01, true});
    Kept kept(quadratic(1));
    EXPECT_TRUE(simulate(scenario, &kept).completed());
    return kept.last;
  };
  EXPECT_EQ(end("abs"), end("allreduce"));
}

TEST(Abs, EndsInTheSameRoundEverywhere) {
  Scenario scenario = abs_scenario(5, plain_network(1e8, 1ms), 5000);
  scenario.speeds = {1, 1.3, 2, 3.1, 0.7};
  scenario.jitter = 0.3;
  const auto objective = quadratic(5);
  const Report report = simulate(scenario, objective.get());
  ASSERT_TRUE(report.completed());
  for (const WorkerReport& worker : report.workers) {
    EXPECT_EQ(worker.strategy["rounds"], report.workers[0].strategy["rounds"]);
    EXPECT_EQ(worker.strategy["round_samples"], report.workers[0].strategy["round_samples"]);
  }
  EXPECT_EQ(report.observations.back().consensus, 0);
  std::int64_t applied = 0;
  for (const auto& [samples, times] : report.workers[0].strategy["round_samples"].items())
    applied += std::stoll(samples) * times.get<std::int64_t>();
  EXPECT_EQ(applied, report.samples) << "samples were computed and not used";
}

}  // namespace
}  // namespace skein::sim
