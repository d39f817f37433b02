#include "core/block_pool.h"

#include <algorithm>
#include <bit>

#include "core/check.h"

namespace skein {
namespace {

constexpr std::size_t kLeast = 256;

}  // namespace

// Few different sizes, so that what was given back fits what is asked for next.
std::size_t BlockPool::block_size(std::size_t wanted) const {
  const std::size_t bytes = std::max(wanted, kLeast);
  if (bytes <= part_bytes_ / 2) return std::bit_ceil(bytes);
  const std::size_t step = std::max(part_bytes_, std::bit_floor(bytes) / 8);
  return (bytes + step - 1) / step * step;
}

void* BlockPool::take(std::size_t bytes, const Make& make) {
  const std::size_t size = block_size(bytes);
  const std::lock_guard lock(mutex_);
  auto& spare = free_[size];
  if (spare.empty()) {
    const std::size_t part = std::max(size, part_bytes_);
    auto* const begin = static_cast<std::byte*>(make(part));
    const auto number = static_cast<std::uint32_t>(parts_.size());
    parts_.emplace(begin, Part{number, begin, part});
    for (std::size_t at = part; at >= size; at -= size) spare.push_back(begin + at - size);
  }
  std::byte* const block = spare.back();
  spare.pop_back();
  taken_[block] = size;
  return block;
}

void BlockPool::give_back(void* block) {
  const std::lock_guard lock(mutex_);
  const auto found = taken_.find(block);
  SKEIN_CHECK(found != taken_.end(), "a block that nobody took is given back");
  free_[found->second].push_back(static_cast<std::byte*>(block));
  taken_.erase(found);
}

std::optional<BlockPool::Part> BlockPool::part_of(const void* address) const {
  const auto* const at = static_cast<const std::byte*>(address);
  const std::lock_guard lock(mutex_);
  auto found = parts_.upper_bound(at);
  if (found == parts_.begin()) return std::nullopt;
  --found;
  if (at >= found->second.begin + found->second.bytes) return std::nullopt;
  return found->second;
}

}  // namespace skein
