#include "advise/search.h"

#include <algorithm>
#include <cmath>

#include "core/units.h"
#include "skein/error.h"
#include "strategy/registry.h"

namespace skein::advise {
namespace {

// Buckets of the default size first, then sizes of which the model has a few to a few dozen.
std::vector<std::string> bucket_sizes(const std::string& usual, double model_bytes) {
  std::vector<std::string> sizes{usual};
  for (const char* size : {"100MB", "4MB", "1MB", "256KB"}) {
    const double buckets = model_bytes / static_cast<double>(parse_bytes(size));
    if (buckets > 2 && buckets < 64) sizes.emplace_back(size);
  }
  return sizes;
}

bool takes(const std::string& strategy, const std::string& key, const std::string& value) {
  try {
    check_strategy(strategy, {{key, value}});
    return true;
  } catch (const ConfigError&) {
    return false;
  }
}

void set(Setup& setup, const std::string& key, const std::string& value) {
  if (key == "levels")
    setup.one_level = value == "one";
  else if (value.empty())
    setup.settings.erase(key);
  else
    setup.settings[key] = value;
}

}  // namespace

Space Space::of(const sim::Scenario& cluster) {
  Space space;
  space.workers = cluster.workers;
  space.model_bytes = 4 * static_cast<double>(cluster.profile.parameters());
  const auto& speeds = cluster.speeds;
  space.unequal =
      cluster.slowdowns.every.count() > 0 ||
      std::adjacent_find(speeds.begin(), speeds.end(), std::not_equal_to<>()) != speeds.end();
  const int per_host = cluster.network.workers_per_host;
  space.levels = cluster.network.two_levels && per_host > 1 && cluster.workers > per_host;
  return space;
}

std::vector<Axis> axes_of(const std::string& strategy, const Space& space, bool quick) {
  std::vector<Axis> axes;
  if (takes(strategy, "fusion", "4MB")) {
    // The default of dear looks for the size while it trains; here it is found beforehand.
    axes.push_back(
        {"fusion", bucket_sizes(strategy == "dear" ? "25MB" : "", space.model_bytes), 0.02});
    if (space.unequal) axes.push_back({"balance", {"", "true"}, 0.02});
  }
  if (strategy == "local") axes.push_back({"period", {"8", "16"}, 0.10});
  if (strategy == "lasgd") axes.push_back({"period", {"1", "2", "4"}, 0.02});
  if (traits_of(strategy).needs_graph) {
    // The better connected first. Up to three workers have one graph.
    std::vector<std::string> graphs{"exponential", "ring"};
    if (space.workers <= 3) graphs = {"ring"};
    axes.push_back({"topology", graphs, 0.02});
    axes.push_back({"rate", {"1", "0.5"}, 0.05});
  }
  if (space.levels) axes.push_back({"levels", {"auto", "one"}, 0.02});
  if (quick)
    for (Axis& axis : axes)
      if (axis.key != "balance") axis.values.resize(1);
  return axes;
}

Candidate search(const Setup& start, const std::vector<Axis>& axes, const Predict& predict) {
  Setup setup = start;
  for (const Axis& axis : axes) set(setup, axis.key, axis.values.front());
  Candidate best = predict(setup);
  for (const Axis& axis : axes) {
    const Setup before = best.setup;
    for (std::size_t i = 1; i < axis.values.size(); ++i) {
      Setup changed = before;
      set(changed, axis.key, axis.values[i]);
      const Candidate other = predict(changed);
      if (other.samples_per_second > best.samples_per_second * (1 + axis.margin)) best = other;
    }
  }
  return best;
}

std::vector<Candidate> search_all(const Space& space, bool quick, const Predict& predict) {
  std::vector<Candidate> best;
  for (const std::string& strategy : strategy_names()) {
    best.push_back(search({strategy, {}}, axes_of(strategy, space, quick), predict));
    if (!takes(strategy, "wire", "bf16")) continue;
    Setup half = best.back().setup;
    half.settings["wire"] = "bf16";
    best.push_back(predict(half));
  }
  return best;
}

}  // namespace skein::advise
