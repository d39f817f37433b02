// Which pieces of memory that is never given back are free: for memory of devices that other
// processes may have open.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <unordered_map>
#include <vector>

namespace skein {

// Large blocks are parts of their own, small ones of one size share a part. Thread-safe. It knows
// addresses alone and never touches what is there.
class BlockPool {
 public:
  // The bytes of a part that small blocks share; parts are multiples of it.
  explicit BlockPool(std::size_t part_bytes) : part_bytes_(part_bytes) {}
  BlockPool(const BlockPool&) = delete;
  BlockPool& operator=(const BlockPool&) = delete;

  struct Part {
    std::uint32_t number = 0;  // from 0
    std::byte* begin = nullptr;
    std::size_t bytes = 0;
  };

  // Makes memory of so many bytes, which is the next part's; it may throw.
  using Make = std::function<void*(std::size_t bytes)>;

  // A block that nobody has, aligned to 256 bytes as its part is.
  void* take(std::size_t bytes, const Make& make);
  void give_back(void* block);

  // The part that holds `address`.
  std::optional<Part> part_of(const void* address) const;

 private:
  std::size_t block_size(std::size_t wanted) const;

  const std::size_t part_bytes_;
  mutable std::mutex mutex_;
  std::map<const std::byte*, Part> parts_;
  std::map<std::size_t, std::vector<std::byte*>> free_;  // by size
  std::unordered_map<void*, std::size_t> taken_;         // and their sizes
};

}  // namespace skein
