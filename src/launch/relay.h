// Passes a worker's output on, line by line, each with the worker's rank in front.
#pragma once

#include <string>
#include <string_view>

#include "core/file_descriptor.h"

namespace skein {

// Output that cannot be written has nowhere else to go, so errors are dropped.
void write_all(int descriptor, std::string_view text);

class Relay {
 public:
  // Reads `from` (made non-blocking) and writes to `to`, which it does not own. Lines also go,
  // without prefix, to `log` unless it is -1.
  Relay(FileDescriptor from, int to, std::string prefix, int log = -1);

  int descriptor() const { return from_.get(); }  // -1 after the end

  // Passes on what is there: whole lines, and at the end of the stream what remains.
  void pump();

 private:
  void emit(std::size_t count);

  FileDescriptor from_;
  int to_;
  std::string prefix_;
  int log_;
  std::string pending_;
};

}  // namespace skein
