// The strategies that exist, by name.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "strategy/option_reader.h"
#include "strategy/strategy.h"

namespace skein {

using StrategyOptions = std::map<std::string, std::string>;

std::vector<std::string> strategy_names();

// Checks name and options without making anything. Throws ConfigError that lists what is allowed.
void check_strategy(const std::string& name, const StrategyOptions& options);

// What there is to know of a strategy without making one.
struct StrategyInfo {
  std::string name;
  const StrategyTraits& traits;
  std::vector<OptionInfo> options;
};
const std::vector<StrategyInfo>& strategies();

// ConfigError that lists what is allowed where there is none of that name.
const StrategyInfo& strategy_info(const std::string& name);
inline const StrategyTraits& traits_of(const std::string& name) {
  return strategy_info(name).traits;
}

// A strategy for a run of that many workers, with what all of them share worked out once.
using MakeStrategy = std::function<std::unique_ptr<Strategy>(Worker&)>;
MakeStrategy prepare_strategy(const std::string& name, const StrategyOptions& options, int workers,
                              std::uint64_t seed);

// The same for one worker.
std::unique_ptr<Strategy> make_strategy(const std::string& name, const StrategyOptions& options,
                                        Worker& worker);

}  // namespace skein
