#include "strategy/live_model.h"

#include <algorithm>
#include <cmath>

#include "core/portable_math.h"
#include "kernels/kernels.h"

namespace skein {
namespace {

// A stall must not wipe out the momentum.
constexpr double kMostGradients = 5;

constexpr std::size_t kUpdateBlock = std::size_t{1} << 14;  // stays in the cache

}  // namespace

LiveModel::LiveModel(Arena& arena, double eta, double alpha_tilde)
    : arena_(arena),
      eta_(eta),
      alpha_tilde_(static_cast<float>(alpha_tilde)),
      x_(arena.plane("x")),
      momentum_(eta > 0 ? arena.plane("x~") : Span{}),
      mixed_((arena.size() + kBlock - 1) / kBlock) {}

void LiveModel::start(Time now) {
  copy(x_, arena_.parameters());
  if (eta_ > 0) copy(momentum_, arena_.parameters());
  std::fill(mixed_.begin(), mixed_.end(), now);
}

Range LiveModel::block(std::size_t index) const {
  return {index * kBlock, std::min(kBlock, size() - index * kBlock)};
}

LiveModel::Factors LiveModel::factors(Time from, Time now) const {
  const double gradients = std::min(kMostGradients, seconds(now - from) / seconds_per_gradient_);
  const double take = (1 - portable_exp(-2 * eta_ * gradients)) / 2;
  // Rounded to what 1 − take can hold exactly.
  const auto rounded = static_cast<float>(std::round(std::ldexp(take, 24)) * 0x1p-24);
  return {1 - rounded, rounded};
}

void LiveModel::mix_block(std::size_t index, Time now) {
  if (eta_ == 0 || seconds_per_gradient_ <= 0) return;
  const Factors f = factors(mixed_[index], now);
  mixed_[index] = now;
  if (f.take > 0) skein::mix(x_.at(block(index)), momentum_.at(block(index)), f.keep, f.take);
}

void LiveModel::mix(Time now) {
  for (std::size_t i = 0; i < mixed_.size(); ++i) mix_block(i, now);
}

void LiveModel::step(Time now, const std::function<void(Range)>& update) {
  mix(now);
  if (eta_ == 0 || x_.device == Device::absent) return update({0, size()});
  const auto memory = allocate_on_heap(std::min(kUpdateBlock, size()));
  for (std::size_t offset = 0; offset < size(); offset += kUpdateBlock) {
    const Range range{offset, std::min(kUpdateBlock, size() - offset)};
    const Span old = memory->span().at({0, range.count});
    copy(old, x_.at(range));
    update(range);
    add_difference(momentum_.at(range), x_.at(range), old);
  }
}

void LiveModel::average(Time now, std::size_t offset, Span difference) {
  mix_block(offset / kBlock, now);
  const Range range{offset, difference.count};
  axpy(x_.at(range), 0.5F, difference);
  if (eta_ > 0) axpy(momentum_.at(range), alpha_tilde_, difference);
}

void LiveModel::read(Span into, Time now) const {
  copy(into, x_);
  if (eta_ == 0 || seconds_per_gradient_ <= 0) return;
  for (std::size_t i = 0; i < mixed_.size(); ++i) {
    const Factors f = factors(mixed_[i], now);
    scale(into.at(block(i)), f.keep);
    axpy(into.at(block(i)), f.take, momentum_.at(block(i)));
  }
}

}  // namespace skein
