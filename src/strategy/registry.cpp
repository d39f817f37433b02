#include "strategy/registry.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "skein/error.h"
#include "strategy/abs.h"
#include "strategy/allreduce.h"
#include "strategy/dear.h"
#include "strategy/gossip.h"
#include "strategy/lasgd.h"
#include "strategy/local.h"

namespace skein {
namespace {

struct Entry {
  const char* name;
  void (*check)(const StrategyOptions&);
  MakeStrategy (*prepare)(const StrategyOptions&, int workers, std::uint64_t seed);
  bool gossips = false;
};

template <typename S>
Entry entry(const char* name) {
  return {name, [](const StrategyOptions& options) { (void)typename S::Options(options); },
          [](const StrategyOptions& given, int, std::uint64_t) -> MakeStrategy {
            return [options = typename S::Options(given)](Worker& worker) {
              return std::make_unique<S>(worker, options);
            };
          }};
}

template <bool Momentum>
Entry gossip_entry(const char* name) {
  return {name, [](const StrategyOptions& options) { (void)GossipOptions(options, Momentum); },
          [](const StrategyOptions& given, int workers, std::uint64_t seed) -> MakeStrategy {
            const GossipOptions options(given, Momentum);
            const auto plan = std::make_shared<const GossipPlan>(options, Momentum, workers, seed);
            return [plan](Worker& worker) { return std::make_unique<Gossip>(worker, plan); };
          },
          true};
}

const std::vector<Entry>& entries() {
  static const std::vector<Entry> all{
      entry<AllReduce>("allreduce"), entry<Dear>("dear"),   entry<Abs>("abs"),
      entry<Local>("local"),         entry<Lasgd>("lasgd"), gossip_entry<false>("gossip"),
      gossip_entry<true>("acid")};
  return all;
}

const Entry& find(const std::string& name) {
  for (const Entry& candidate : entries())
    if (candidate.name == name) return candidate;
  throw ConfigError(
      fmt::format("no strategy '{}': expected one of {}", name, fmt::join(strategy_names(), ", ")));
}

}  // namespace

std::vector<std::string> strategy_names() {
  std::vector<std::string> names;
  for (const Entry& each : entries()) names.emplace_back(each.name);
  return names;
}

void check_strategy(const std::string& name, const StrategyOptions& options) {
  find(name).check(options);
}

bool strategy_gossips(const std::string& name) { return find(name).gossips; }

MakeStrategy prepare_strategy(const std::string& name, const StrategyOptions& options, int workers,
                              std::uint64_t seed) {
  return find(name).prepare(options, workers, seed);
}

std::unique_ptr<Strategy> make_strategy(const std::string& name, const StrategyOptions& options,
                                        Worker& worker) {
  return prepare_strategy(name, options, worker.size(), worker.seed())(worker);
}

}  // namespace skein
