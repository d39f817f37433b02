#include "sim/compute.h"

#include <algorithm>

namespace skein::sim {
namespace {

bool same_tensors(const Profile& profile, const Arena& arena) {
  auto slot = arena.slots().begin();
  for (const Layer& layer : profile.layers)
    for (const std::int64_t count : layer.parameters) {
      if (slot == arena.slots().end()) return false;
      if (slot++->range.count != static_cast<std::size_t>(count)) return false;
    }
  return slot == arena.slots().end();
}

// `total` in proportion to sizes; what rounding leaves goes to the last.
std::vector<Duration> spread(Duration total, const std::vector<double>& sizes) {
  double all = 0, before = 0;
  for (const double size : sizes) all += size;
  std::vector<Duration> parts;
  Duration given{};
  for (const double size : sizes) {
    before += size;
    const Duration until = from_seconds(seconds(total) * before / all);
    parts.push_back(until - given);
    given = until;
  }
  return parts;
}

}  // namespace

ComputePlan::ComputePlan(const Profile& profile, const Arena& arena)
    : slots_(arena.slots().size()) {
  if (!same_tensors(profile, arena)) {
    std::vector<double> sizes;
    for (const Slot& slot : arena.slots()) sizes.push_back(static_cast<double>(slot.range.count));
    const auto forward = spread(profile.forward(), sizes);
    const auto backward = spread(profile.backward(), sizes);
    for (std::size_t i = 0; i < slots_.size(); ++i) slots_[i] = {forward[i], backward[i]};
    return;
  }
  // A layer begins when the last of its tensors may be read. One without tensors goes on right
  // after the layer before it; its backward delays the gradients of what came before it.
  std::size_t next = 0;
  for (const Layer& layer : profile.layers) {
    next += layer.parameters.size();
    (next > 0 ? slots_[next - 1].backward : backward_tail_) += layer.backward;
    if (!slots_.empty()) slots_[next > 0 ? next - 1 : 0].forward += layer.forward;
  }
}

std::vector<ComputePlan::Piece> ComputePlan::by_bucket(const BucketPlan& plan) const {
  std::vector<Piece> pieces(static_cast<std::size_t>(plan.count()));
  for (std::size_t slot = 0; slot < slots_.size(); ++slot) {
    Piece& piece = pieces[static_cast<std::size_t>(plan.bucket_of(static_cast<int>(slot)))];
    piece.forward += slots_[slot].forward;
    piece.backward += slots_[slot].backward;
  }
  return pieces;
}

Profile emulated_profile(const Profile& shape, Duration step, std::int64_t batch) {
  Profile profile = shape;
  profile.batch = batch;
  profile.source = "emulated step";
  profile.update = {};  // a part of the emulated time: see emulate/pacer.h
  std::erase_if(profile.layers, [](const Layer& layer) { return layer.parameters.empty(); });
  std::vector<double> sizes;
  for (const Layer& layer : profile.layers) {
    double size = 0;
    for (const std::int64_t count : layer.parameters) size += static_cast<double>(count);
    sizes.push_back(size);
  }
  const Duration forward = step / 3;
  const auto forwards = spread(forward, sizes), backwards = spread(step - forward, sizes);
  for (std::size_t i = 0; i < profile.layers.size(); ++i) {
    profile.layers[i].forward = forwards[i];
    profile.layers[i].backward = backwards[i];
  }
  return profile;
}

}  // namespace skein::sim
