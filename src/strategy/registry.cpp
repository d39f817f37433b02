#include "strategy/registry.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "skein/error.h"
#include "strategy/abs.h"
#include "strategy/allreduce.h"
#include "strategy/dear.h"
#include "strategy/gossip/gossip.h"
#include "strategy/lasgd.h"
#include "strategy/local.h"

namespace skein {
namespace {

struct Entry {
  const char* name;
  const StrategyTraits& traits;
  void (*check)(OptionReader&);
  MakeStrategy (*prepare)(OptionReader&, int workers, std::uint64_t seed);
};

template <typename S>
Entry entry(const char* name) {
  return {name, S::kTraits, [](OptionReader& reader) { (void)typename S::Options(reader); },
          [](OptionReader& reader, int, std::uint64_t) -> MakeStrategy {
            return [options = typename S::Options(reader)](Worker& worker) {
              return std::make_unique<S>(worker, options);
            };
          }};
}

// `gossip` and `acid` share a plan among their workers.
template <bool Momentum>
Entry gossip_entry(const char* name) {
  static constexpr const StrategyTraits& kTraits = Momentum ? Gossip::kAcidTraits : Gossip::kTraits;
  return {name, kTraits, [](OptionReader& reader) { (void)GossipOptions(reader, Momentum); },
          [](OptionReader& reader, int workers, std::uint64_t seed) -> MakeStrategy {
            const GossipOptions options(reader, Momentum);
            const auto plan = std::make_shared<const GossipPlan>(options, Momentum, workers, seed);
            return
                [plan](Worker& worker) { return std::make_unique<Gossip>(worker, kTraits, plan); };
          }};
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

const std::vector<StrategyInfo>& strategies() {
  static const std::vector<StrategyInfo> all = [] {
    std::vector<StrategyInfo> infos;
    for (const Entry& each : entries()) {
      OptionReader reader(each.name, {});
      each.check(reader);
      infos.push_back({each.name, each.traits, reader.known()});
    }
    return infos;
  }();
  return all;
}

const StrategyInfo& strategy_info(const std::string& name) {
  return *std::ranges::find(strategies(), find(name).name, &StrategyInfo::name);
}

void check_strategy(const std::string& name, const StrategyOptions& options) {
  const Entry& entry = find(name);
  OptionReader reader(name, options);
  entry.check(reader);
  reader.finish();
}

MakeStrategy prepare_strategy(const std::string& name, const StrategyOptions& options, int workers,
                              std::uint64_t seed) {
  const Entry& entry = find(name);
  check_strategy(name, options);
  OptionReader reader(name, options);
  return entry.prepare(reader, workers, seed);
}

std::unique_ptr<Strategy> make_strategy(const std::string& name, const StrategyOptions& options,
                                        Worker& worker) {
  return prepare_strategy(name, options, worker.size(), worker.seed())(worker);
}

}  // namespace skein
