// Ranks as forked processes, on a fabric that is made in each.
#pragma once

#include <vector>

#include "conformance/harness.h"
#include "conformance/one_rank.h"

namespace skein::conformance {

// With `prepare`, every rank's loop has the queue of a toy device, and all have met on it.
std::vector<Outcome> run_forked(int size, const Body& body, const MakeFabric& make,
                                const PrepareQueue& prepare = nullptr);

// The local fabric on a toy device.
std::vector<Outcome> run_on_device(int size, const Body& body,
                                   const PrepareQueue& prepare = as_it_is);

// Ends the calling process as kill -9 would.
Task<> die(Fabric&);

}  // namespace skein::conformance
