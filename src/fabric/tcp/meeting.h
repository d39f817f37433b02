// How the workers of a run find each other: rank 0 listens at the rendezvous, the others go there.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "core/loop.h"
#include "fabric/tcp/door.h"
#include "fabric/tcp/poller.h"
#include "fabric/tcp/stream.h"
#include "fabric/tcp/tcp.h"

namespace skein::tcp {

// What a worker has when all are there.
struct Met {
  std::vector<std::unique_ptr<Stream>> streams;   // to every other rank, by rank
  std::vector<std::optional<Address>> addresses;  // where each listens, by rank
  Run run{};
  std::unique_ptr<Door> door;  // where this worker goes on listening
};

// What a worker says of itself whenever it says hello.
Hello hello_of(const TcpOptions& options);

// Returns when all are there; what it returns needs `tls` as long as it lasts. Drives the loop
// meanwhile. Throws like make_tcp_fabric().
//
// Only who shows that it belongs to the run is listened to. Others may connect as often as they
// like: only the latest few of them are kept, none for long.
Met meet(Loop& loop, Poller& poller, const Tls& tls, const TcpOptions& options);

}  // namespace skein::tcp
