// How the workers of a run find each other: rank 0 listens at the rendezvous, the others go there.
#pragma once

#include <memory>
#include <vector>

#include "core/loop.h"
#include "fabric/tcp/poller.h"
#include "fabric/tcp/stream.h"
#include "fabric/tcp/tcp.h"

namespace skein::tcp {

// Returns a connection to every other rank, by rank, when all are there; they need `tls` as long as
// they last. Drives the loop meanwhile. Throws like make_tcp_fabric().
//
// Only who knows the run's secret is listened to. Others may connect as often as they like: only
// the latest few of them are kept, none for long.
std::vector<std::unique_ptr<Stream>> meet(Loop& loop, Poller& poller, const Tls& tls,
                                          const TcpOptions& options);

}  // namespace skein::tcp
