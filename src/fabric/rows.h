// A table with a row from each rank, as a record to be combined.
#pragma once

#include <algorithm>
#include <cstddef>
#include <optional>
#include <span>
#include <vector>

#include "fabric/fabric.h"

namespace skein {

// All ranks' rows have the same number of bytes. After Fabric::combine(record(), merge()) every
// rank has all of them; those of ranks that took no part are missing.
class Rows {
 public:
  Rows(int ranks, std::size_t row_bytes)
      : stride_(1 + row_bytes), bytes_(static_cast<std::size_t>(ranks) * stride_) {}

  void put(int rank, std::span<const std::byte> row) {
    SKEIN_CHECK(row.size() + 1 == stride_, "a row of {} bytes among rows of {}", row.size(),
                stride_ - 1);
    std::byte* const at = bytes_.data() + static_cast<std::size_t>(rank) * stride_;
    *at = kPresent;
    std::ranges::copy(row, at + 1);
  }

  std::optional<std::span<const std::byte>> row(int rank) const {
    const std::byte* const at = bytes_.data() + static_cast<std::size_t>(rank) * stride_;
    if (*at != kPresent) return std::nullopt;
    return std::span(at + 1, stride_ - 1);
  }

  std::size_t row_bytes() const { return stride_ - 1; }

  void clear() { std::ranges::fill(bytes_, std::byte{}); }

  Span record() { return message_of(bytes_); }

  Merge merge() const {
    return [stride = stride_](std::span<std::byte> into, std::span<const std::byte> from) {
      for (std::size_t at = 0; at < into.size(); at += stride)
        if (from[at] == kPresent)
          std::ranges::copy(from.subspan(at, stride),
                            into.begin() + static_cast<std::ptrdiff_t>(at));
    };
  }

 private:
  static constexpr std::byte kPresent{1};

  std::size_t stride_;
  std::vector<std::byte> bytes_;
};

}  // namespace skein
