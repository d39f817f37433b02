// Finds out whether a file is still what was written: its length and a CRC-32C.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>

namespace skein {

struct FileSum {
  std::uint64_t bytes = 0;
  std::uint32_t crc32c = 0;

  bool operator==(const FileSum&) const = default;
};

// Of bytes that come in pieces of any size. It finds damage, not malice.
class Checksum {
 public:
  void add(const void* data, std::size_t bytes);
  FileSum sum() const { return {bytes_, ~state_}; }

 private:
  std::uint32_t state_ = ~std::uint32_t{0};
  std::uint64_t bytes_ = 0;
};

// Of a file's contents. Throws Error, with the path and the reason, for one that cannot be read.
FileSum checksum_of(const std::filesystem::path& path);

}  // namespace skein
