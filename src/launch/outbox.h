// Bytes that wait until a descriptor takes them.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace skein {

// Does not own the descriptor, which must not block.
class Outbox {
 public:
  explicit Outbox(int descriptor) : descriptor_(descriptor) {}

  void add(std::string_view bytes) { pending_ += bytes; }
  std::size_t size() const { return pending_.size() - written_; }

  // Writes what is taken now. False when the other side is gone: then there is nothing to write.
  bool flush();

 private:
  int descriptor_;
  std::string pending_;
  std::size_t written_ = 0;  // of it
};

// So that reads and writes of it never wait.
void make_nonblocking(int descriptor);

}  // namespace skein
