#include "advise/choice.h"

#include <functional>

#include "core/check.h"
#include "strategy/registry.h"

namespace skein::advise {
namespace {

// The first of those that `counts` with the largest value.
std::size_t best_of(const std::vector<Candidate>& candidates,
                    const std::function<bool(const Candidate&)>& counts,
                    const std::function<double(const Candidate&)>& value) {
  std::size_t best = candidates.size();
  for (std::size_t i = 0; i < candidates.size(); ++i)
    if (counts(candidates[i]) &&
        (best == candidates.size() || value(candidates[i]) > value(candidates[best])))
      best = i;
  return best;
}

}  // namespace

double Rule::percent(const Setup& setup) const {
  const double rounding = is_bf16(setup) ? 3 : 0;
  const StrategyTraits& traits = traits_of(setup.strategy);
  return traits.price + (traits.synchronous ? rounding : margin);
}

double Rule::worth(const Candidate& candidate) const {
  return candidate.samples_per_second / (1 + percent(candidate.setup) / 100);
}

Choice choose(const std::vector<Candidate>& candidates, const Rule& rule) {
  const auto all = [](const Candidate&) { return true; };
  const auto speed = [](const Candidate& each) { return each.samples_per_second; };
  const auto worth = [&](const Candidate& each) { return rule.worth(each); };
  Choice choice;
  choice.recommended = best_of(candidates, all, worth);
  choice.fastest = best_of(candidates, all, speed);
  choice.synchronous = best_of(
      candidates,
      [](const Candidate& each) { return is_synchronous(each.setup) && !is_bf16(each.setup); },
      worth);
  choice.plain = best_of(
      candidates,
      [](const Candidate& each) {
        return each.setup.strategy == "allreduce" && !is_bf16(each.setup);
      },
      speed);
  SKEIN_CHECK(choice.plain < candidates.size(), "no allreduce among {} candidates",
              candidates.size());
  const Setup& chosen = candidates[choice.recommended].setup;
  choice.runner_up = best_of(
      candidates, [&](const Candidate& each) { return each.setup.strategy != chosen.strategy; },
      worth);
  if (choice.runner_up == candidates.size()) choice.runner_up = choice.recommended;
  return choice;
}

}  // namespace skein::advise
