#include "advise/predict.h"

#include <algorithm>
#include <memory>
#include <numeric>
#include <utility>

#include "core/statistics.h"
#include "sim/simulation.h"
#include "strategy/registry.h"

namespace skein::advise {
namespace {

constexpr int kLongerGossip = 4;  // times the steps of others, of which the second half counts

// The busiest worker's, as its strategy says.
double steps_between(const sim::Report& report) {
  double most = 1;
  for (const sim::WorkerReport& each : report.workers)
    for (const char* key : {"mean_steps_between_merges", "mean_micro_batches_per_round"})
      if (each.strategy.contains(key)) most = std::max(most, each.strategy[key].get<double>());
  return most;
}

// Of the steps from number `first` on, at `samples` a step.
double rate_from(const std::vector<Duration>& steps, std::ptrdiff_t first, std::int64_t samples) {
  const auto settled = steps.begin() + std::min(first, std::ssize(steps));
  const Duration time = std::accumulate(settled, steps.end(), Duration(0));
  const auto count = static_cast<std::int64_t>(steps.end() - settled);
  return static_cast<double>(samples * count) / std::max(1e-9, seconds(time));
}

// Once the run has settled. Synchronous workers make one global batch a step, all of them; shares
// by speed are found in the first few. The others have each a pace of their own, but those who
// gossip run ahead of their neighbours first, as far as they may.
double samples_per_second(const sim::Scenario& scenario, const sim::Report& report,
                          const Setup& setup) {
  const std::int64_t own = scenario.batch * scenario.accumulate;
  const auto& first = report.workers.front().figures.iterations;
  if (is_synchronous(setup)) return rate_from(first, std::ssize(first) / 4, own * scenario.workers);
  double rate = 0;
  for (const sim::WorkerReport& each : report.workers) {
    const Duration active = each.figures.last_step - each.figures.first_step;
    const auto& steps = each.figures.iterations;
    if (traits_of(setup.strategy).needs_graph)
      rate += rate_from(steps, std::ssize(steps) / 2, own);
    else if (active.count() > 0)
      rate += static_cast<double>(each.figures.samples) / seconds(active);
  }
  return rate;
}

void read_report(const sim::Scenario& scenario, const sim::Report& report, Candidate& out) {
  std::vector<double> iterations;
  iterations.reserve(report.workers.front().figures.iterations.size());
  for (const Duration time : report.workers.front().figures.iterations)
    iterations.push_back(milliseconds(time));
  double bytes = 0, exposed = 0;
  for (const sim::WorkerReport& each : report.workers) {
    bytes += static_cast<double>(each.bytes_sent);
    exposed += milliseconds(each.figures.exposed) /
               static_cast<double>(std::max<std::int64_t>(1, each.figures.steps));
  }
  const double batches = static_cast<double>(report.samples) /
                         static_cast<double>(scenario.batch * scenario.accumulate);
  const double summed_speed =
      static_cast<double>(scenario.batch * scenario.workers) / seconds(scenario.mean_gradient());
  const double rate = samples_per_second(scenario, report, out.setup);
  out.iteration_ms = quantile(iterations, 0.5);
  out.samples_per_second = rate;
  out.of_summed_speed = rate / summed_speed;
  out.bytes_per_step = bytes / std::max(1.0, batches);
  out.exposed_ms = exposed / static_cast<double>(report.workers.size());
  out.steps_between = steps_between(report);
}

}  // namespace

Candidate predict(const sim::Scenario& cluster, const Setup& setup, int steps) {
  sim::Scenario scenario = cluster;
  scenario.strategy = setup.strategy;
  scenario.strategy_settings = setup.settings;
  if (setup.one_level) scenario.network.two_levels = false;
  scenario.time = {};
  scenario.observe_time = {};
  scenario.observe_samples = 0;
  scenario.samples = scenario.batch * scenario.accumulate * scenario.workers * steps *
                     (traits_of(setup.strategy).needs_graph ? kLongerGossip : 1);
  const sim::Report report = sim::simulate(scenario, nullptr);
  Candidate out;
  out.setup = setup;
  out.events = report.events;
  if (report.completed())
    read_report(scenario, report, out);
  else if (report.first_failed >= 0)
    out.error = report.workers[static_cast<std::size_t>(report.first_failed)].outcome.error;
  else
    out.error = "the simulated run hung";
  return out;
}

Predict remembering_predictor(const sim::Scenario& cluster, int steps) {
  const auto known = std::make_shared<std::vector<Candidate>>();
  return [cluster, steps, known](const Setup& setup) {
    const auto found = std::find_if(known->begin(), known->end(),
                                    [&](const Candidate& each) { return each.setup == setup; });
    if (found != known->end()) return *found;
    known->push_back(predict(cluster, setup, steps));
    return known->back();
  };
}

}  // namespace skein::advise
