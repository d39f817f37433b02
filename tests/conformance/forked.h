// Ranks as forked processes, on a fabric that is made in each.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "conformance/harness.h"

namespace skein::conformance {

// Makes the fabric of one rank, in its own process. Throws when the workers do not meet.
using MakeFabric = std::function<std::unique_ptr<Fabric>(Loop& loop, int rank)>;

// `on_device`: every rank's loop has the queue of a toy device.
std::vector<Outcome> run_forked(int size, const Body& body, const MakeFabric& make,
                                bool on_device = false);

// Ends the calling process as kill -9 would.
Task<> die(Fabric&);

}  // namespace skein::conformance
