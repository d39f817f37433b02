// What `skein simulate` says about a run.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "cli/simulate_options.h"
#include "sim/simulation.h"
#include "sim/swarm.h"

namespace skein {

// Every figure as JSON.
nlohmann::json figures_of(const SimulateOptionReader::Request& request, const sim::Report& report);

// For people, from those figures.
std::string simulation_text(const nlohmann::json& figures);

// One row for each point of a sweep: the swept keys and values in front.
struct SweepPoint {
  std::vector<std::pair<std::string, std::string>> settings;
  nlohmann::json figures;
};
std::string sweep_text(const std::vector<SweepPoint>& points);

nlohmann::json figures_of(const sim::SwarmReport& swarm);
std::string swarm_text(const sim::SwarmReport& swarm);

}  // namespace skein
