// One line that says what a command does now, and is overwritten.
#pragma once

#include <fmt/format.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <string>

namespace skein {

// On a terminal only, at most ten times a second.
class StatusLine {
 public:
  explicit StatusLine(bool quiet) : on_(!quiet && isatty(STDERR_FILENO) != 0) {}
  ~StatusLine() { clear(); }
  StatusLine(const StatusLine&) = delete;
  StatusLine& operator=(const StatusLine&) = delete;

  bool on() const { return on_; }

  void say(const std::string& text) {
    const auto now = std::chrono::steady_clock::now();
    if (!on_ || now - last_ < std::chrono::milliseconds(100)) return;
    last_ = now;
    drawn_ = true;
    fmt::print(stderr, "\r\x1b[2K{}", text);
    std::fflush(stderr);
  }
  void clear() {
    if (drawn_) fmt::print(stderr, "\r\x1b[2K");
    drawn_ = false;
  }

 private:
  bool on_, drawn_ = false;
  std::chrono::steady_clock::time_point last_{};
};

}  // namespace skein
