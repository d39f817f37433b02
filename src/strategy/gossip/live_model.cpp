#include "strategy/gossip/live_model.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "core/portable_math.h"
#include "kernels/kernels.h"
#include "kernels/threads.h"

namespace skein {
namespace {

// A stall must not wipe out the momentum.
constexpr double kMostGradients = 5;

// What a step on a device keeps of the old model at a time: enough for the device to be busy.
constexpr std::size_t kOnDevice = std::size_t{1} << 24;

// Calls work(part) for the parts of `range`, in order.
template <typename Work>
void in_parts(Range range, std::size_t most, const Work& work) {
  for (std::size_t offset = range.offset; offset < range.end(); offset += most)
    work(Range{offset, std::min(most, range.end() - offset)});
}

}  // namespace

LiveModel::LiveModel(Arena& arena, double eta, double alpha_tilde, Allocate allocate)
    : arena_(arena),
      allocate_(std::move(allocate)),
      eta_(eta),
      alpha_tilde_(static_cast<float>(alpha_tilde)),
      x_(arena.plane("x")),
      momentum_(eta > 0 ? arena.plane("x~") : Span{}),
      mixed_((arena.size() + kBlock - 1) / kBlock) {}

void LiveModel::start(Time now) {
  copy(x_, arena_.parameters());
  if (eta_ > 0) copy(momentum_, arena_.parameters());
  std::fill(mixed_.begin(), mixed_.end(), now);
  averaged_ = false;
  paused_.reset();
}

void LiveModel::pause(Time now) {
  if (!paused_) paused_ = now;
}

void LiveModel::go_on(Time now) {
  if (!paused_) return;
  for (Time& mixed : mixed_) mixed += now - *paused_;
  paused_.reset();
}

Range LiveModel::block(std::size_t index) const {
  return {index * kBlock, std::min(kBlock, size() - index * kBlock)};
}

std::size_t LiveModel::part_size() const {
  return x_.device.kind == Device::gpu ? kBlock : kCachePiece;
}

LiveModel::Factors LiveModel::factors(Time from, Time now) const {
  const double gradients = std::min(kMostGradients, seconds(now - from) / seconds_per_gradient_);
  const double take = (1 - portable_exp(-2 * eta_ * gradients)) / 2;
  // Rounded to what 1 − take can hold exactly.
  const auto rounded = static_cast<float>(std::round(std::ldexp(take, 24)) * 0x1p-24);
  return {1 - rounded, rounded};
}

// What to mix the block with.
LiveModel::Factors LiveModel::bring_to(Time now, std::size_t block) {
  if (!flows()) return {};
  const Time until = paused_.value_or(now);
  return factors(std::exchange(mixed_[block], until), until);
}

void LiveModel::mix(Range range, const Factors& factors) {
  if (factors.take > 0) skein::mix(x_.at(range), momentum_.at(range), factors.keep, factors.take);
}

// On several threads where the host does the work; a device has one queue for all of it.
template <typename Work>
void LiveModel::for_blocks(std::size_t count, const Work& work) const {
  if (x_.device == Device::cpu) return for_pieces(count, work);
  for (std::size_t index = 0; index < count; ++index) work(index);
}

// Blocks that lie together and were mixed at the same time: in one operation.
void LiveModel::mix_together(Range range, const std::vector<Factors>& f) {
  for (std::size_t at = range.offset; at < range.end();) {
    const std::size_t first = block_of(at);
    std::size_t last = first;
    while ((last + 1) * kBlock < range.end() && f[last + 1] == f[first]) ++last;
    const std::size_t end = std::min(range.end(), (last + 1) * kBlock);
    mix({at, end - at}, f[first]);
    at = end;
  }
}

std::vector<LiveModel::Factors> LiveModel::bring_all_to(Time now) {
  std::vector<Factors> f;
  f.reserve(mixed_.size());
  for (std::size_t i = 0; i < mixed_.size(); ++i) f.push_back(bring_to(now, i));
  return f;
}

void LiveModel::copy_to(Span into, Time now) {
  if (!flows()) return copy(into, x_);
  if (x_.device.kind == Device::gpu) {
    mix_together({0, size()}, bring_all_to(now));
    return copy(into, x_);
  }
  for_blocks(mixed_.size(), [&](std::size_t index) {
    const Factors f = bring_to(now, index);
    in_parts(block(index), part_size(), [&](Range part) {
      mix(part, f);
      copy(into.at(part), x_.at(part));
    });
  });
}

// An update uses the threads itself, so with several of them a part is a block for each.
void LiveModel::step(Time now, bool whole, const std::function<void(Range)>& update) {
  averaged_ = false;
  if (eta_ == 0 || x_.device == Device::absent) {
    update({0, size()});
    return copy(arena_.parameters(), x_);
  }
  const auto threads = static_cast<std::size_t>(kernel_threads());
  const bool on_device = x_.device.kind == Device::gpu;
  const std::size_t most = whole          ? size()
                           : on_device    ? kOnDevice
                           : threads == 1 ? part_size()
                                          : threads * kBlock;
  const auto memory = allocate_(std::min(most, size()));
  const std::vector<Factors> f = bring_all_to(now);
  in_parts({0, size()}, most, [&](Range part) {
    const Span old = memory->span().at({0, part.count});
    const std::size_t first = block_of(part.offset);
    if (on_device)
      mix_together(part, f);
    else
      for_blocks(block_of(part.end() - 1) - first + 1, [&](std::size_t piece) {
        const std::size_t begin = std::max(part.offset, (first + piece) * kBlock);
        mix({begin, std::min(part.end(), (first + piece + 1) * kBlock) - begin}, f[first + piece]);
      });
    copy(old, x_.at(part));
    update(part);
    add_difference(momentum_.at(part), x_.at(part), old);
    copy(arena_.parameters().at(part), x_.at(part));
  });
}

void LiveModel::average(Time now, std::size_t offset, Span theirs, Span mine) {
  averaged_ = true;
  const Factors f = bring_to(now, block_of(offset));
  in_parts({0, theirs.count}, part_size(), [&](Range part) {
    const Range here{offset + part.offset, part.count};
    const Span difference = theirs.at(part);
    axpy(difference, -1, mine.at(part));
    mix(here, f);
    axpy(x_.at(here), 0.5F, difference);
    if (eta_ > 0) axpy(momentum_.at(here), alpha_tilde_, difference);
  });
}

void LiveModel::read(Span into, Time now) const {
  copy(into, x_);
  if (!flows()) return;
  for (std::size_t i = 0; i < mixed_.size(); ++i) {
    const Factors f = factors(mixed_[i], paused_.value_or(now));
    scale(into.at(block(i)), f.keep);
    axpy(into.at(block(i)), f.take, momentum_.at(block(i)));
  }
}

}  // namespace skein
