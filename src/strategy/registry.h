// The strategies that exist, by name.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "strategy/strategy.h"

namespace skein {

using StrategyOptions = std::map<std::string, std::string>;

std::vector<std::string> strategy_names();

// Checks name and options without making anything. Throws ConfigError that lists what is allowed.
void check_strategy(const std::string& name, const StrategyOptions& options);

// Whether workers of this strategy talk along a graph, at a rate: it has options of these names.
bool strategy_gossips(const std::string& name);

// A strategy for a run of that many workers, with what all of them share worked out once.
using MakeStrategy = std::function<std::unique_ptr<Strategy>(Worker&)>;
MakeStrategy prepare_strategy(const std::string& name, const StrategyOptions& options, int workers,
                              std::uint64_t seed);

// The same for one worker.
std::unique_ptr<Strategy> make_strategy(const std::string& name, const StrategyOptions& options,
                                        Worker& worker);

}  // namespace skein
