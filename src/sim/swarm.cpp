#include "sim/swarm.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>

#include "optimize/sgd.h"
#include "sim/objectives/objectives.h"
#include "strategy/registry.h"

namespace skein::sim {
namespace {

using namespace std::chrono_literals;

template <typename T>
const T& one_of(Rng& rng, const std::vector<T>& values) {
  return values[rng.below(values.size())];
}

Duration between(Rng& rng, Duration low, Duration high) {
  return low + Duration(static_cast<Duration::rep>(
                   rng.below(static_cast<std::uint64_t>((high - low).count() + 1))));
}

Network draw_network(Rng& rng) {
  Network network =
      parse_network(one_of<std::string>(rng, {"1gbe", "10gbe", "25gbe", "100gib", "wan"}));
  network.workers_per_host = one_of<int>(rng, {1, 1, 2, 4});
  if (rng.below(3) == 0) network.jitter = between(rng, 1us, 500us);
  if (rng.below(4) == 0) network.chunk_bytes = 0;
  return network;
}

Profile draw_profile(Rng& rng) {
  Profile profile;
  profile.name = "random";
  profile.batch = static_cast<std::int64_t>(1 + rng.below(32));
  for (std::uint64_t layer = 1 + rng.below(12); layer > 0; --layer) {
    Layer made{.name = fmt::format("layer {}", layer), .parameters = {}};
    for (std::uint64_t tensor = rng.below(3); tensor > 0; --tensor)
      made.parameters.push_back(static_cast<std::int64_t>(1 + rng.below(200'000)));
    made.forward = between(rng, 1us, 3ms);
    made.backward = 2 * made.forward;
    profile.layers.push_back(std::move(made));
  }
  if (profile.tensors() == 0) profile.layers.front().parameters.push_back(1000);
  profile.update = between(rng, 0us, 1ms);
  return profile;
}

// How long the run takes when nothing goes wrong.
Duration calm_length(const Draw& draw) {
  Scenario calm = draw.scenario;
  calm.faults.clear();
  return simulate(calm, nullptr).time;
}

std::map<std::string, std::string> draw_gossip(Rng& rng) {
  return {{"topology", one_of<std::string>(rng, {"ring", "complete", "star", "exponential"})},
          {"rate", one_of<std::string>(rng, {"0.5", "1", "2"})},
          {"schedule", one_of<std::string>(rng, {"poisson", "fixed"})},
          {"momentum", one_of<std::string>(rng, {"local", "averaged"})}};
}

std::map<std::string, std::string> draw_settings(Rng& rng, const std::string& strategy,
                                                 std::int64_t samples) {
  const auto fusion = one_of<std::string>(rng, {"auto", "none", "100KB", "1MB"});
  if (traits_of(strategy).synchronous) return {{"fusion", fusion}};
  if (strategy == "local")
    return {{"period", std::to_string(1 + rng.below(4))},
            {"outer_momentum", one_of<std::string>(rng, {"0", "0.7"})}};
  if (traits_of(strategy).needs_graph) return draw_gossip(rng);
  if (strategy == "abs")
    return {{"delay", one_of<std::string>(rng, {"0", "1", "auto"})},
            {"lookahead", one_of<std::string>(rng, {"auto", "own", "share", "momentum", "none"})},
            {"warmup_rounds", one_of<std::string>(rng, {"0", "0", "5"})}};
  if (strategy != "lasgd") return {};
  std::map<std::string, std::string> settings;
  if (rng.below(3) == 0)
    settings["period_ms"] = std::to_string(1 + rng.below(50));
  else
    settings["period"] = std::to_string(1 + rng.below(4));
  if (rng.below(3) == 0) settings["warmup"] = std::to_string(samples / 3);
  if (rng.below(2) == 0) settings["average_momentum"] = "true";
  if (rng.below(2) == 0) settings["outer_momentum"] = "0.5";
  return settings;
}

std::unique_ptr<Objective> objective_of(const Draw& draw) {
  if (!draw.quadratic) return nullptr;
  return make_objective({.name = "quadratic",
                         .workers = draw.scenario.workers,
                         .seed = draw.scenario.seed,
                         .dirichlet = {}});
}

// Whether all workers of this strategy wait for each other in every step.
bool synchronous(const Scenario& scenario) { return traits_of(scenario.strategy).lockstep; }

// Whether all workers make the same updates.
bool same_updates(const Scenario& scenario) { return scenario.strategy != "lasgd"; }

bool takes_a_worker(const Fault& fault) { return fault.kind <= Fault::Kind::restart; }

// Whether what stands still or lags, taken together, leaves half the patience.
bool others_pass(const Scenario& scenario) {
  Duration lost{};
  for (const Fault& fault : scenario.faults) {
    if (takes_a_worker(fault) || fault.kind == Fault::Kind::slow) continue;
    if (fault.lasting.count() == 0) return false;
    lost += fault.lasting + 4 * scenario.workers * fault.extra;
  }
  return lost < scenario.patience / 2;
}

// Whether even a synchronous run must survive them all.
bool all_pass(const Scenario& scenario) {
  return std::none_of(scenario.faults.begin(), scenario.faults.end(), takes_a_worker) &&
         others_pass(scenario);
}

// Whether somebody must have named a worker that was lost. Where workers begin to wait at different
// times, one that vanished without a trace is first missed by whoever waits longest, for another
// that waits itself.
bool must_be_named(const Scenario& scenario) {
  const bool vanished =
      std::any_of(scenario.faults.begin(), scenario.faults.end(),
                  [](const Fault& fault) { return fault.kind == Fault::Kind::vanish; });
  return others_pass(scenario) && (synchronous(scenario) || !vanished);
}

std::string check_workers(const Scenario& scenario, const Report& report) {
  bool taken = false;
  for (int rank = 0; rank < scenario.workers; ++rank) {
    const WorkerReport& each = report.workers[static_cast<std::size_t>(rank)];
    const Outcome& outcome = each.outcome;
    taken |= each.taken;
    if (outcome.kind == Outcome::Kind::running) return fmt::format("rank {} never ended", rank);
    if (outcome.kind == Outcome::Kind::failed &&
        (!outcome.io_error || outcome.peer < 0 || outcome.peer == rank))
      return fmt::format("rank {} named no peer: {}", rank, outcome.error);
  }
  if (taken && report.first_failed >= 0 && must_be_named(scenario) && report.lost().empty())
    return "nobody named a worker that was lost";
  return "";
}

std::string check_completed(const Scenario& scenario, const Report& report) {
  for (int rank = 0; rank < scenario.workers; ++rank) {
    const WorkerReport& each = report.workers[static_cast<std::size_t>(rank)];
    if (each.outcome.kind != Outcome::Kind::completed)
      return fmt::format("rank {} did not complete: {}", rank, each.outcome.error);
    if (same_updates(scenario) && each.figures.steps != report.workers.front().figures.steps)
      return fmt::format("rank {} made {} steps, rank 0 {}", rank, each.figures.steps,
                         report.workers.front().figures.steps);
  }
  if (!report.observations.empty() && report.observations.back().consensus != 0)
    return fmt::format("replicas differ: {}", report.observations.back().consensus);
  return "";
}

std::string check_time(const Scenario& scenario, const Report& report, Duration calm) {
  Duration last_fault{}, slow{};
  for (const Fault& fault : scenario.faults) {
    last_fault = std::max(last_fault, fault.at + fault.lasting);
    if (fault.kind == Fault::Kind::slow)
      slow += from_seconds(seconds(calm) * fault.factor);
    else
      slow +=
          fault.lasting + 4 * scenario.workers * fault.extra * report.workers.front().figures.steps;
  }
  const Duration limit = last_fault + 2 * scenario.patience + 2 * calm + slow;
  return report.time <= limit ? ""
                              : fmt::format("ended at {:.1f} s, expected by {:.1f} s",
                                            seconds(report.time), seconds(limit));
}

// When the first worker that lived to the end began to wait for the others.
Duration first_flush(const Report& report) {
  Time first = kNever;
  for (const WorkerReport& each : report.workers)
    if (!each.taken) first = std::min(first, each.figures.last_step);
  return first - Time();
}

// Whether everything that went wrong was over, and known, before the last average began. A worker
// that was started anew goes on alone, with a model of its own.
bool calm_at_the_end(const Scenario& scenario, const Report& report) {
  if (std::ranges::all_of(report.workers, &WorkerReport::taken)) return false;
  const Duration end = first_flush(report) - 100ms;
  return std::all_of(scenario.faults.begin(), scenario.faults.end(), [&](const Fault& fault) {
    const bool over = takes_a_worker(fault) || fault.lasting.count() > 0;
    return over && fault.kind != Fault::Kind::restart && fault.at + fault.lasting < end &&
           fault.lasting < scenario.patience / 2;
  });
}

// Of strategies that survive losses.
std::string check_survivors(const Scenario& scenario, const Report& report, Duration calm) {
  for (int rank = 0; rank < scenario.workers; ++rank) {
    const WorkerReport& each = report.workers[static_cast<std::size_t>(rank)];
    if (each.outcome.kind == Outcome::Kind::running)
      return fmt::format("rank {} never ended", rank);
    if (!each.taken && each.outcome.kind != Outcome::Kind::completed)
      return fmt::format("rank {} did not survive: {}", rank, each.outcome.error);
  }
  // What workers compute while a count is on its way up and word of the end on its way down.
  const double gradients = 4 + 8 * seconds(scenario.network.latency + scenario.network.jitter) /
                                   seconds(scenario.mean_gradient());
  const auto most = static_cast<double>(scenario.samples) +
                    gradients * static_cast<double>(scenario.workers * scenario.batch);
  if (scenario.faults.empty() && static_cast<double>(report.samples) > most)
    return fmt::format("{} samples of {}", report.samples, scenario.samples);
  if (calm_at_the_end(scenario, report) && !report.observations.empty() &&
      report.observations.back().consensus != 0)
    return fmt::format("replicas differ: {}", report.observations.back().consensus);
  // One that is alone makes all steps itself.
  Duration limit = 8 * scenario.patience + 2 * (scenario.workers + 1) * calm;
  for (const Fault& fault : scenario.faults)
    limit += 2 * limit + fault.at + 2 * fault.lasting +
             from_seconds(seconds(calm) * scenario.workers * fault.factor) + 1000 * fault.extra;
  return report.time <= limit ? "" : fmt::format("ended at {:.1f} s", seconds(report.time));
}

std::string broken_promise(const Draw& draw, const Report& report) {
  if (report.hung) return "hangs";
  if (traits_of(draw.scenario.strategy).needs_graph)
    return check_survivors(draw.scenario, report, calm_length(draw));
  std::string broken = check_workers(draw.scenario, report);
  if (broken.empty()) broken = check_time(draw.scenario, report, calm_length(draw));
  if (broken.empty() && all_pass(draw.scenario)) broken = check_completed(draw.scenario, report);
  return broken;
}

}  // namespace

Draw draw(std::uint64_t seed) {
  Rng rng = Rng(seed).split(0x737761726d);
  Draw made;
  Scenario& scenario = made.scenario;
  scenario.seed = seed;
  scenario.workers = static_cast<int>(1 + rng.below(rng.below(4) == 0 ? 24 : 8));
  scenario.network = draw_network(rng);
  scenario.strategy = one_of(rng, strategy_names());
  scenario.profile = draw_profile(rng);
  scenario.batch = scenario.profile.batch;
  scenario.samples =
      scenario.batch * scenario.workers * static_cast<std::int64_t>(2 + rng.below(6));
  scenario.jitter = rng.below(2) == 0 ? 0 : rng.uniform(0, 0.3);
  if (rng.below(3) == 0)
    for (int rank = 0; rank < scenario.workers; ++rank)
      scenario.speeds.push_back(rng.uniform(0.5, 4));
  if (rng.below(4) == 0) scenario.slowdowns = {20ms, 10ms, rng.uniform(1, 5)};
  scenario.strategy_settings = draw_settings(rng, scenario.strategy, scenario.samples);
  scenario.most_events = 100'000'000;
  scenario.patience = between(rng, 30s, 120s);
  scenario.optimizer = [](std::size_t size, Allocate allocate) {
    return std::make_unique<Sgd>(size, SgdOptions{0.9, 0, false}, std::move(allocate));
  };
  made.quadratic = rng.below(2) == 0;
  if (made.quadratic) scenario.observe_samples = scenario.batch * scenario.workers;
  const Duration length = calm_length(made);
  for (std::uint64_t count = rng.below(4); count > 0; --count)
    scenario.faults.push_back(
        draw_fault(rng, scenario.workers, std::max<Duration>(length, 1ms), all_fault_kinds()));
  // Some outlast all patience.
  if (!scenario.faults.empty() && rng.below(4) == 0)
    scenario.faults.front().lasting = 3 * scenario.patience;
  return made;
}

std::string Draw::describe() const {
  std::string strategy = scenario.strategy;
  for (const auto& [key, value] : scenario.strategy_settings)
    strategy += fmt::format(" {}={}", key, value);
  return fmt::format("{} on {} workers, {} per host, {}, {} tensors, {}: {}", strategy,
                     scenario.workers, scenario.network.workers_per_host, scenario.network.name,
                     scenario.profile.tensors(), quadratic ? "quadratic" : "time only",
                     scenario.faults.empty() ? "no faults" : sim::describe(scenario.faults));
}

Verdict judge(const Draw& draw) {
  const auto run = [&] {
    const auto objective = objective_of(draw);
    return simulate(draw.scenario, objective.get());
  };
  Verdict verdict{"", run()};
  verdict.broken = broken_promise(draw, verdict.report);
  if (verdict.broken.empty() && draw.scenario.seed % 8 == 0 && run().hash != verdict.report.hash)
    verdict.broken = "another hash the second time";
  return verdict;
}

SwarmReport run_swarm(std::uint64_t first, std::uint64_t last,
                      const std::function<void(std::uint64_t seed)>& tell) {
  const auto begin = std::chrono::steady_clock::now();
  SwarmReport swarm;
  for (std::uint64_t seed = first; seed <= last; ++seed) {
    const Draw drawn = draw(seed);
    const Verdict verdict = judge(drawn);
    ++swarm.seeds;
    ++(verdict.report.completed() ? swarm.completed : swarm.failed);
    if (verdict.report.hung) ++swarm.hangs;
    for (const Fault& fault : drawn.scenario.faults) ++swarm.faults[name_of(fault.kind)];
    if (!verdict.broken.empty()) swarm.broken[seed] = verdict.broken;
    swarm.events += verdict.report.events;
    tell(seed);
  }
  swarm.wall_seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  return swarm;
}

}  // namespace skein::sim
