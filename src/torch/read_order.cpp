#include "torch/read_order.h"

namespace skein {

ReadOrder::ReadOrder(const Binding& binding)
    : seen_(static_cast<std::size_t>(binding.slots())),
      hook_(
          binding, [this](int slot) { on_read(slot); }, ReadHook::Watch::parameters) {
  hook_.activate();
}

void ReadOrder::on_read(int slot) {
  if (!at::GradMode::is_enabled()) return;
  const std::lock_guard lock(mutex_);
  if (seen_[static_cast<std::size_t>(slot)]) return;
  seen_[static_cast<std::size_t>(slot)] = true;
  order_.push_back(slot);
  if (order_.size() == seen_.size()) hook_.deactivate();
}

// Buckets are cut and sent from the arena's end, one after the other. What is not read gets no
// gradient, and its bucket is complete only when backward has ended: it must not come before
// others.
std::vector<int> ReadOrder::slots() {
  hook_.deactivate();
  const std::lock_guard lock(mutex_);
  std::vector<int> all;
  for (std::size_t slot = 0; slot < seen_.size(); ++slot)
    if (!seen_[slot]) all.push_back(static_cast<int>(slot));
  all.insert(all.end(), order_.begin(), order_.end());
  return all;
}

}  // namespace skein
