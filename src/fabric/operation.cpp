#include "fabric/operation.h"

#include <fmt/format.h>

#include <array>
#include <string_view>
#include <utility>

namespace skein {

std::string describe(const Operation& operation) {
  constexpr std::array<std::pair<std::string_view, std::string_view>, 6> kWords{
      {{"reduce_scatter", "summing over all workers, to each its part (reduce_scatter)"},
       {"all_gather", "collecting the parts of all workers (all_gather)"},
       {"all_reduce", "summing over all workers (all_reduce)"},
       {"combine", "collecting what all workers say of themselves (combine)"},
       {"broadcast", "handing out one worker's values (broadcast)"},
       {"barrier", "waiting for all workers (barrier)"}}};
  for (const auto& [name, words] : kWords)
    if (operation.name == name) return std::string(words);
  return operation.name;
}

TooLate::TooLate(const Operation& operation, int peer)
    : IoError(
          operation.limit.by_silence()
              ? fmt::format("{}: rank {} has been silent for too long", describe(operation), peer)
              : fmt::format("{}: rank {} did not answer by the deadline", describe(operation),
                            peer),
          peer) {}

}  // namespace skein
