// Passes a worker's output on, line by line, each with the worker's rank in front.
#pragma once

#include <string>
#include <string_view>

#include "core/file_descriptor.h"
#include "launch/outbox.h"

namespace skein {

// Bytes that may wait for whoever reads what a launcher prints. Above this, workers that print
// wait.
inline constexpr std::size_t kMostUnread = std::size_t{1} << 20;

class Relay {
 public:
  // Reads `from` (made non-blocking) and adds to `to`, which outlives it. With a prefix, whole
  // lines are passed on; without one, whatever comes. It also goes, without prefix, to `log`, a
  // regular file, unless that is -1.
  Relay(FileDescriptor from, Outbox& to, std::string prefix, int log = -1);

  int descriptor() const { return from_.get(); }  // -1 after the end

  // Whether pump() would read: not while more than kMostUnread bytes wait in `to`.
  bool has_room() const { return to_.size() < kMostUnread; }

  // Passes on what is there: whole lines, and at the end of the stream what remains.
  void pump();

 private:
  void emit(std::size_t count);

  FileDescriptor from_;
  Outbox& to_;
  std::string prefix_;
  int log_;
  std::string pending_;
};

}  // namespace skein
