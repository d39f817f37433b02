#include "strategy/strategy.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "kernels/kernels.h"
#include "plan/shares.h"
#include "skein/error.h"
#include "strategy/move_state.h"

namespace skein {

std::vector<std::int64_t> Strategy::split(std::int64_t samples) {
  return even_shares(samples, worker_.size());
}

nlohmann::json Strategy::figures() const { return nlohmann::json::object(); }
nlohmann::json Strategy::step_figures() const { return nlohmann::json::object(); }

Task<Mark> Strategy::need(int) { co_return nullptr; }
Task<> Strategy::flush() { co_return; }
void Strategy::refuse_flush_within_step() {
  throw ConfigError(
      "flush() came between backward() and step(): call it, and save(), after step(), when the "
      "gradients have been used");
}

Task<> Strategy::settle() { co_await flush(); }
Task<> Strategy::background() { co_return; }
Task<> Strategy::average(Span) { co_return; }

// Equal replicas have all of it each, unless they say otherwise. A mean is made in pieces: the
// order of a sum depends on where it is cut.
Task<> Strategy::stream_state(int to, const TakeState& take) {
  constexpr std::size_t kPiece = std::size_t{1} << 20;  // elements
  const auto state = worker_.optimizer().state();
  const bool shown = worker_.rank() == to;
  if (equal_replicas()) {
    if (shown)
      for (const auto& [name, vector] : state) take(name, {0, vector.count}, vector);
    co_return;
  }
  if (state.empty()) co_return;
  const auto memory = worker_.allocate(kPiece);
  for (const auto& [name, vector] : state)
    for (std::size_t at = 0; at < vector.count; at += kPiece) {
      const Range piece{at, std::min(kPiece, vector.count - at)};
      const Span mean = memory->span().at({0, piece.count});
      copy(mean, vector.at(piece));
      co_await average(mean);
      if (shown) take(name, piece, mean);
    }
}

// Each worker has the whole of it, or its own: nothing travels.
Task<> Strategy::take_over_state(Optimizer& from, const BucketPlan&,
                                 const std::vector<Placed>& placed) {
  std::vector<Transfer> all;
  all.reserve(placed.size());
  for (const Placed& each : placed)
    all.push_back({each.before, worker_.rank(), worker_.rank(), each.now});
  co_await move_state(worker_, from.owned_state(), all, worker_.channel(0));
}

}  // namespace skein
