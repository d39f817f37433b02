#include "strategy/outer_momentum.h"

#include <utility>

#include "kernels/kernels.h"
#include "kernels/threads.h"

namespace skein {

OuterMomentum::OuterMomentum(Worker& worker, double momentum)
    : worker_(worker),
      momentum_(worker.size() > 1 ? static_cast<float>(momentum) : 0),
      share_(1 / static_cast<float>(worker.size())) {
  if (!on()) return;
  anchor_ = worker.arena().plane("mean of the last round");
  velocity_ = worker.arena().plane("outer momentum");
}

double OuterMomentum::read(OptionReader& reader) {
  constexpr double kMost = 0.999;
  return reader.number("outer_momentum", 0, 0, kMost,
                       "momentum of the mean of the models, from round to round");
}

void OuterMomentum::move_on(Span model, Span sum) {
  const bool first = !std::exchange(anchored_, true);
  const auto move = [&](const GroupRule& rule) {
    in_one_pass(model.at(rule.range), [&](Range within) {
      const Range part{rule.range.offset + within.offset, within.count};
      const Span anchor = anchor_.at(part), velocity = velocity_.at(part);
      if (first) return copy_scaled(anchor, share_, sum.at(part));
      scale(velocity, momentum_);
      axpy(velocity, -1, anchor);
      copy_scaled(anchor, share_, sum.at(part));
      add(velocity, anchor);
      axpy(anchor, momentum_, velocity);
      if (!rule.frozen) axpy(model.at(part), momentum_, velocity);
    });
  };
  const Range whole{0, model.count};
  if (const Groups* const groups = worker_.groups())
    groups->split(whole, move);
  else
    move({.range = whole});
}

void OuterMomentum::remember(Span model, Span place) {
  if (!anchored_) return;
  copy(place, model);
  remembers_ = true;
}

void OuterMomentum::follow_writes(Span model, Span place) {
  if (!std::exchange(remembers_, false)) return;
  axpy(place, -1, model);
  axpy(anchor_, -1, place);
}

SharedState OuterMomentum::shared_state() {
  if (!on()) return {};
  return {{{"outer_anchor", anchor_}, {"outer_momentum", velocity_}}, &anchored_};
}

}  // namespace skein
