// Memory for parts of messages that wait for their receiver. What is given back is used again:
// fresh memory costs more than what is copied there, since the system clears it page by page.
#pragma once

#include <cstddef>
#include <memory>
#include <utility>
#include <vector>

namespace skein::boxed {

class PartMemory {
 public:
  using Buffer = std::unique_ptr<std::byte[]>;

  // A part has at most `whole` bytes. Blocks of so many serve parts of more than `least` bytes, and
  // at most `most_free` of them are kept.
  PartMemory(std::size_t whole, std::size_t least, std::size_t most_free)
      : whole_(whole), least_(least), most_free_(most_free) {}

  // At least `bytes` of it.
  Buffer take(std::size_t bytes) {
    if (bytes <= least_) return std::make_unique_for_overwrite<std::byte[]>(bytes);
    if (free_.empty()) return std::make_unique_for_overwrite<std::byte[]>(whole_);
    Buffer out = std::move(free_.back());
    free_.pop_back();
    return out;
  }

  // What was taken for so many bytes.
  void give_back(Buffer buffer, std::size_t bytes) {
    if (bytes > least_ && free_.size() < most_free_) free_.push_back(std::move(buffer));
  }

 private:
  const std::size_t whole_, least_, most_free_;
  std::vector<Buffer> free_;
};

}  // namespace skein::boxed
