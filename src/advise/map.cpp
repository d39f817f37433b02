#include "advise/map.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "advise/cluster.h"
#include "advise/sentences.h"
#include "core/units.h"
#include "strategy/registry.h"

namespace skein::advise {
namespace {

constexpr double kBandwidths[] = {12.5e6, 37.5e6, 125e6, 375e6, 1.25e9, 3.75e9, 12.5e9};
constexpr double kRatios[] = {1, 1.5, 2, 3, 4, 8};

}  // namespace

char letter_of(const std::string& strategy) { return traits_of(strategy).letter; }

std::string letters_of(const Setup& setup) {
  return fmt::format("{}{}", letter_of(setup.strategy),
                     setup.settings.contains("balance") ? "b" : "");
}

Map make_map(const Advice& advice, const Effort& effort, const Tell& tell) {
  Map map{{std::begin(kBandwidths), std::end(kBandwidths)},
          {std::begin(kRatios), std::end(kRatios)},
          {}};
  map.cells.reserve(map.bandwidths.size() * map.ratios.size());
  for (const double ratio : map.ratios)
    for (const double bandwidth : map.bandwidths) {
      tell(fmt::format("map, {} of {}: {}, fastest over slowest {}", map.cells.size() + 1,
                       map.bandwidths.size() * map.ratios.size(), rate_text(bandwidth), ratio));
      const auto again = try_again(with_ratio(with_bandwidth(advice.cluster, bandwidth), ratio),
                                   advice.candidates, effort);
      const Choice choice = choose(again, effort.rule);
      // Plain: without balance.
      const auto plain = std::find_if(again.begin(), again.end(), [](const Candidate& each) {
        return each.setup.strategy == "allreduce" && !is_bf16(each.setup);
      });
      const Candidate& chosen = again[choice.recommended];
      map.cells.push_back(
          {chosen.setup, chosen.samples_per_second / std::max(1e-9, plain->samples_per_second)});
    }
  return map;
}

std::string map_text(const Map& map) {
  std::string text = fmt::format("{:>16}", "fastest/slowest");
  for (const double bandwidth : map.bandwidths) text += fmt::format("{:>12}", rate_text(bandwidth));
  std::set<std::string> seen;
  for (std::size_t row = 0; row < map.ratios.size(); ++row) {
    text += fmt::format("\n{:>16}", map.ratios[row]);
    for (std::size_t column = 0; column < map.bandwidths.size(); ++column) {
      const Cell& cell = map.at(row, column);
      seen.insert(cell.setup.strategy);
      text += fmt::format("{:>12}", fmt::format("{}{} {:.2f}x", letters_of(cell.setup),
                                                is_bf16(cell.setup) ? "16" : "", cell.gain));
    }
  }
  text += "\n";
  for (const std::string& strategy : seen)
    text += fmt::format("{}{} {}", text.ends_with("\n") ? "" : ", ", letter_of(strategy), strategy);
  return text +
         "; b: shares by speed (balance); 16: bfloat16 on the wire; gains over plain allreduce";
}

}  // namespace skein::advise
