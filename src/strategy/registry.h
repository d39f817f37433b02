// The strategies that exist, by name.
#pragma once

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

std::unique_ptr<Strategy> make_strategy(const std::string& name, const StrategyOptions& options,
                                        Worker& worker);

}  // namespace skein
