// One rank of a test, in the process that it has for itself.
#pragma once

#include <functional>
#include <memory>

#include "conformance/harness.h"

namespace skein::conformance {

// Makes the fabric of one rank, in its own process. Throws when the workers do not meet.
using MakeFabric = std::function<std::unique_ptr<Fabric>(Loop& loop, int rank)>;

// What is special about a rank's device.
using PrepareQueue = std::function<void(toy::ToyQueue& queue, int rank)>;
inline void as_it_is(toy::ToyQueue&, int) {}

// How the rank ended, in memory that processes can share or send.
struct Report {
  bool finished, ok, io_error;
  int peer;
  char error[400];

  Outcome outcome(int signal = 0) const { return {ok, error, io_error, peer, signal}; }
};

// Makes the fabric and runs `body` on it, on a loop of its own. With `prepare` the loop has the
// queue of a toy device.
void run_rank(const Body& body, const MakeFabric& make, const PrepareQueue& prepare, int rank,
              Report& report);

}  // namespace skein::conformance
