#include "optimize/owned_state.h"

#include "kernels/kernels.h"

namespace skein {

OwnedState::OwnedState(std::size_t size, std::vector<std::string> names)
    : size_(size), names_(std::move(names)), memory_(names_.size()) {
  lay_out({{0, size}});
}

void OwnedState::lay_out(std::vector<Range> ranges) {
  std::erase_if(ranges, [](const Range& range) { return range.count == 0; });
  owned_ = std::move(ranges);
  offsets_.clear();
  count_ = 0;
  std::size_t end = 0;
  for (const Range& range : owned_) {
    SKEIN_CHECK(end <= range.offset && range.offset <= size_ && range.count <= size_ - range.offset,
                "own [{}, +{}) after {} in a plane of {}", range.offset, range.count, end, size_);
    end = range.end();
    offsets_.push_back(count_);
    count_ += range.count;
  }
}

void OwnedState::own(std::vector<Range> ranges) {
  const std::vector<Range> old_owned = owned_;
  const std::vector<std::size_t> old_offsets = offsets_;
  lay_out(std::move(ranges));
  for (auto& memory : memory_) {
    if (!memory) continue;
    const Span from = memory->span();
    auto next = allocate_on_heap(count_);
    for (std::size_t i = 0, j = 0; i < old_owned.size() && j < owned_.size();) {
      const Range& a = old_owned[i];
      const Range& b = owned_[j];
      const std::size_t start = std::max(a.offset, b.offset), end = std::min(a.end(), b.end());
      if (start < end)
        copy(next->span().at({offsets_[j] + start - b.offset, end - start}),
             from.at({old_offsets[i] + start - a.offset, end - start}));
      a.end() < b.end() ? ++i : ++j;
    }
    memory = std::move(next);
  }
}

std::map<std::string, Span> OwnedState::vectors() {
  std::map<std::string, Span> result;
  for (std::size_t i = 0; i < names_.size(); ++i) result[names_[i]] = vector(i);
  return result;
}

Span OwnedState::vector(std::size_t index) {
  auto& memory = memory_.at(index);
  if (!memory) memory = allocate_on_heap(count_);
  return memory->span();
}

std::size_t OwnedState::first_ending_after(std::size_t element) const {
  const auto range =
      std::partition_point(owned_.begin(), owned_.end(),
                           [&](const Range& candidate) { return candidate.end() <= element; });
  return static_cast<std::size_t>(range - owned_.begin());
}

}  // namespace skein
