#include "advise/advice.h"

#include <fmt/format.h>

#include <algorithm>

#include "advise/cluster.h"
#include "advise/predict.h"
#include "advise/search.h"
#include "core/units.h"
#include "skein/error.h"

namespace skein::advise {
namespace {

constexpr int kTrialSteps = 2;
constexpr double kMostEvents = 8e6;
constexpr double kRounding = 1.01;  // what a short run may seem to gain over the summed speed

Walk walk(double from, double to) {
  return {.from = from, .to = to, .stride = 4, .precision = 1.05};
}

}  // namespace

int affordable_steps(const sim::Scenario& cluster) {
  const Candidate trial = predict(cluster, {"allreduce", {}}, kTrialSteps);
  const double each = static_cast<double>(trial.events) / kTrialSteps;
  for (const int steps : {40, 24, 16})
    if (each * steps < kMostEvents) return steps;
  return 8;
}

std::string answer_of(const Setup& setup) {
  return setup.strategy + (is_bf16(setup) ? ", bf16" : "");
}

std::vector<Candidate> try_again(const sim::Scenario& cluster,
                                 const std::vector<Candidate>& candidates, const Effort& effort) {
  std::vector<Setup> setups;
  const auto add = [&](const Setup& setup) {
    if (std::find(setups.begin(), setups.end(), setup) == setups.end()) setups.push_back(setup);
  };
  const bool unequal = Space::of(cluster).unequal;
  for (const Candidate& each : candidates) {
    Setup other = each.setup;
    other.settings.erase("balance");
    add(other);
    if (!is_synchronous(other) || !unequal) continue;
    other.settings["balance"] = "true";
    add(other);
  }
  // The cheapest first, so that the dear ones have something to beat.
  std::stable_sort(setups.begin(), setups.end(), [&](const Setup& a, const Setup& b) {
    return effort.rule.percent(a) < effort.rule.percent(b);
  });
  std::vector<Candidate> out;
  out.reserve(setups.size());
  double best = 0, all = 0;
  for (const Setup& setup : setups) {
    Candidate bound;
    bound.setup = setup;
    bound.samples_per_second = all * kRounding;
    if (all > 0 && effort.rule.worth(bound) < best) continue;
    out.push_back(predict(cluster, setup, effort.again));
    best = std::max(best, effort.rule.worth(out.back()));
    if (out.back().of_summed_speed > 0)
      all = out.back().samples_per_second / out.back().of_summed_speed;
  }
  return out;
}

Advice make_advice(const sim::Scenario& cluster, const Effort& effort, const Tell& tell) {
  if (cluster.workers < 2)
    throw ConfigError("--workers 1: one worker has nobody to wait for; expected at least 2");
  Advice advice;
  advice.cluster = cluster;
  const auto count = [&](const std::vector<Candidate>& simulated) {
    advice.simulations += static_cast<int>(simulated.size());
    for (const Candidate& each : simulated) advice.events += each.events;
  };

  const Predict known = remembering_predictor(cluster, effort.steps);
  const Predict recording = [&](const Setup& setup) {
    const std::string settings = settings_of(setup);
    tell(fmt::format("{}{}{}", setup.strategy, settings.empty() ? "" : ", ", settings));
    Candidate candidate = known(setup);
    if (std::none_of(advice.tried.begin(), advice.tried.end(),
                     [&](const Candidate& each) { return each.setup == setup; }))
      advice.tried.push_back(candidate);
    return candidate;
  };
  advice.candidates = search_all(Space::of(cluster), effort.quick, recording);
  count(advice.tried);
  advice.choice = choose(advice.candidates, effort.rule);
  if (!advice.recommended().error.empty())
    throw ConfigError(fmt::format("no strategy comes to its end on this cluster: {}",
                                  advice.recommended().error));
  if (!effort.changes) return advice;

  Effort shorter = effort;
  const auto at = [&](const sim::Scenario& other) {
    const auto again = try_again(other, advice.candidates, shorter);
    count(again);
    return answer_of(again[choose(again, effort.rule).recommended].setup);
  };
  const std::string answer = answer_of(advice.recommended().setup);
  tell("the same again, for fewer steps");
  advice.chosen_again = at(cluster);
  if (advice.chosen_again != answer && effort.again < effort.steps) {
    shorter.again = effort.steps;  // no longer shorter, and so no longer another answer
    advice.chosen_again = at(cluster);
  }
  if (advice.chosen_again != answer) return advice;
  const double network = cluster.network.bytes_per_second, ratio = ratio_of(cluster);
  const auto with_network = [&](double bytes_per_second) {
    if (bytes_per_second == network) return std::string(answer);
    tell("with a network of " + print_bandwidth(bytes_per_second));
    return at(with_bandwidth(cluster, bytes_per_second));
  };
  const auto with_workers = [&](double other) {
    if (other == ratio) return std::string(answer);
    tell(fmt::format("with workers up to {:.2f} times as fast as others", other));
    return at(with_ratio(cluster, other));
  };
  if (network < kFastestNetwork)
    advice.faster = find_changes(walk(network, kFastestNetwork), with_network);
  if (network > kSlowestNetwork)
    advice.slower = find_changes(walk(network, kSlowestNetwork), with_network);
  if (ratio < kMostUnequal)
    advice.less_equal = find_changes(walk(ratio, kMostUnequal), with_workers);
  if (ratio > 1) advice.more_equal = find_changes(walk(ratio, 1), with_workers);
  return advice;
}

}  // namespace skein::advise
