#include "strategy/registry.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "skein/error.h"
#include "strategy/abs.h"
#include "strategy/allreduce.h"
#include "strategy/dear.h"
#include "strategy/lasgd.h"
#include "strategy/local.h"

namespace skein {
namespace {

struct Entry {
  const char* name;
  void (*check)(const StrategyOptions&);
  std::unique_ptr<Strategy> (*make)(const StrategyOptions&, Worker&);
};

template <typename S>
Entry entry(const char* name) {
  return {name, [](const StrategyOptions& options) { (void)typename S::Options(options); },
          [](const StrategyOptions& options, Worker& worker) -> std::unique_ptr<Strategy> {
            return std::make_unique<S>(worker, typename S::Options(options));
          }};
}

const std::vector<Entry>& entries() {
  static const std::vector<Entry> all{entry<AllReduce>("allreduce"), entry<Dear>("dear"),
                                      entry<Abs>("abs"), entry<Local>("local"),
                                      entry<Lasgd>("lasgd")};
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

std::unique_ptr<Strategy> make_strategy(const std::string& name, const StrategyOptions& options,
                                        Worker& worker) {
  return find(name).make(options, worker);
}

}  // namespace skein
