// Bytes that wait until a descriptor takes them.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "core/file_descriptor.h"

namespace skein {

// Does not own the descriptor; -1 takes everything and keeps nothing. Never blocks, even where the
// descriptor would: then it writes when poll() says that there is room. Each write is of at most
// PIPE_BUF bytes, which end with a line where one ends there, so that lines do not mix with those
// that others write to the same pipe.
class Outbox {
 public:
  explicit Outbox(int descriptor = -1) : descriptor_(descriptor) {}

  void add(std::string_view bytes) { pending_ += bytes; }
  std::size_t size() const { return pending_.size() - written_; }
  int descriptor() const { return descriptor_; }

  // Writes what is taken now. False when the other side is gone: then there is nothing to write.
  bool flush();

  // Drops what is pending.
  void clear();

 private:
  std::string_view next_piece() const;

  int descriptor_;
  std::string pending_;
  std::size_t written_ = 0;  // of it
};

// Sets O_NONBLOCK, so that reads and writes never wait. Whoever shares the open file meets that
// too.
void make_nonblocking(int descriptor);

// A descriptor for writing to the same place. Where the system permits it the new one never blocks,
// while the given one, which other processes may share, stays as it is. Throws Error.
FileDescriptor copy_for_writing(int descriptor);

}  // namespace skein
