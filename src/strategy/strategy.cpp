#include "strategy/strategy.h"

#include <nlohmann/json.hpp>

#include "kernels/kernels.h"
#include "plan/shares.h"
#include "skein/error.h"

namespace skein {

std::vector<std::int64_t> Strategy::split(std::int64_t samples) {
  return even_shares(samples, worker_.size());
}

nlohmann::json Strategy::figures() const { return nlohmann::json::object(); }
nlohmann::json Strategy::step_figures() const { return nlohmann::json::object(); }

Task<> Strategy::expect(std::int64_t) { co_return; }
Task<> Strategy::need(int) { co_return; }
Task<> Strategy::flush() { co_return; }
void Strategy::refuse_flush_within_step() {
  throw ConfigError(
      "flush() came between backward() and step(): call it, and save(), after step(), when the "
      "gradients have been used");
}

Task<> Strategy::settle() { co_await flush(); }
Task<> Strategy::background() { co_return; }

namespace {

// Calls visit(part of the plane, part of the state vectors) for everything the optimizer owns.
template <typename Visit>
void for_owned(Optimizer& optimizer, Visit visit) {
  std::size_t offset = 0;
  for (const Range& range : optimizer.owned()) {
    visit(range, Range{offset, range.count});
    offset += range.count;
  }
}

}  // namespace

OptimizerState own_state(Optimizer& optimizer, std::size_t plane_size, const Allocate& allocate) {
  OptimizerState state;
  for (const auto& [name, vector] : optimizer.state()) {
    auto& plane = state[name];
    plane = allocate(plane_size);
    for_owned(optimizer, [&, &vector = vector](Range in_plane, Range in_vector) {
      copy(plane->span().at(in_plane), vector.at(in_vector));
    });
  }
  return state;
}

Task<> Strategy::whole_state(OptimizerState& state) {
  const Allocate shared = [this](std::size_t count) { return worker_.allocate(count); };
  state = own_state(worker_.optimizer(), worker_.arena().size(), shared);
  co_return;
}

// Equal replicas have all of it each, unless they say otherwise.
Task<> Strategy::stream_state(int to, const TakeState& take) {
  if (equal_replicas()) {
    if (worker_.rank() == to)
      for (const auto& [name, vector] : worker_.optimizer().state())
        take(name, {0, vector.count}, vector);
    co_return;
  }
  OptimizerState state;
  co_await whole_state(state);
  if (worker_.rank() == to)
    for (const auto& [name, plane] : state) take(name, {0, plane->span().count}, plane->span());
}

void restore_state(Optimizer& optimizer, const OptimizerState& state) {
  for (const auto& [name, vector] : optimizer.state())
    for_owned(optimizer, [&, &name = name, &vector = vector](Range in_plane, Range in_vector) {
      copy(vector.at(in_vector), state.at(name)->span().at(in_plane));
    });
}

}  // namespace skein
