// The toy device's memory: files, mapped without rights where the host sees them.
#pragma once

#include <cstddef>

#include "core/file_descriptor.h"
#include "core/span.h"

namespace skein::toy {

// A file of so many zeroed bytes.
FileDescriptor new_file(std::size_t bytes);

// Whole pages, known to inside() while it lives.
class Block {
 public:
  explicit Block(std::size_t bytes);              // of a file that nobody else has
  Block(FileDescriptor file, std::size_t bytes);  // of one that other processes can have
  Block(const Block&) = delete;
  Block& operator=(const Block&) = delete;
  ~Block();

  int file() const { return file_.get(); }
  std::size_t bytes() const { return bytes_; }
  std::byte* outside() const { return outside_; }  // as the host sees it
  std::byte* inside() const { return inside_; }    // and as kernels do

 private:
  std::byte* map(int rights) const;

  FileDescriptor file_;
  std::size_t bytes_;
  std::byte *outside_, *inside_;
};

}  // namespace skein::toy
