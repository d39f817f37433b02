// Reads from a socket that never blocks, with few calls: what comes after what was asked for waits
// here for the next read.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <vector>

namespace skein::tcp {

class Intake {
 public:
  // At most `ahead` bytes wait.
  Intake(int socket, std::size_t ahead) : socket_(socket), ahead_(ahead) {}

  // From now on; those that wait already are read first.
  void read_ahead(std::size_t bytes);

  // As ::recv(): how many bytes were there, 0 at the end of all, -1 with errno.
  ssize_t read(void* into, std::size_t bytes);

 private:
  int socket_;
  std::vector<char> ahead_;
  std::size_t at_ = 0, end_ = 0;  // what of it is there
};

}  // namespace skein::tcp
