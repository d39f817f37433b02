// Ends of a conversation that are told apart.
#pragma once

#include <string>

#include "skein/error.h"

namespace skein::tcp {

// The other side is a worker of the run and will not have this one, or calls the meeting off: there
// is no use in trying again.
class Refused final : public IoError {
 public:
  explicit Refused(const std::string& why) : IoError(why) {}
};

// A connection has ended, or what came was changed on the way: another one may do better.
class ConnectionEnded final : public IoError {
 public:
  explicit ConnectionEnded(const std::string& why) : IoError(why) {}
};

// The host is there and nobody listens at that port of it.
class NobodyListens final : public IoError {
 public:
  explicit NobodyListens(const std::string& why) : IoError(why) {}
};

// One of the two sides has not shown the other that it belongs to the run.
class NotAuthenticated final : public IoError {
 public:
  explicit NotAuthenticated(const std::string& why) : IoError(why) {}
};

}  // namespace skein::tcp
