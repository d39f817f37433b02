// What Skein throws. Every message says what failed, where, and what was expected.
#pragma once

#include <stdexcept>
#include <string>

namespace skein {

// Anything that went wrong while running. The two below say whose doing it was.
class Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// The user's input is wrong: an option, a file, a module that cannot be trained. Exit code 2.
class ConfigError : public Error {
 public:
  using Error::Error;
};

// A peer was lost or a deadline passed. Names the peer, the operation and, in training, the step.
class IoError : public Error {
 public:
  // `peer`: the rank that was waited for.
  explicit IoError(const std::string& message, int peer = -1) : Error(message), peer_(peer) {}

  // The rank that was waited for, or -1 when it is not one rank.
  int peer() const { return peer_; }

 private:
  int peer_;
};

// The operation was called off from this side. Not an error: code must let it pass through.
class Cancelled : public std::exception {
 public:
  const char* what() const noexcept override { return "cancelled"; }  // always this
};

}  // namespace skein
