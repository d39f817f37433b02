// Ranks as forked processes, on a fabric that is made in each.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "conformance/harness.h"

namespace skein::conformance {

// Makes the fabric of one rank, in its own process. Throws when the workers do not meet.
using MakeFabric = std::function<std::unique_ptr<Fabric>(Loop& loop, int rank)>;

// What is special about a rank's device.
using PrepareQueue = std::function<void(toy::ToyQueue& queue, int rank)>;
inline void as_it_is(toy::ToyQueue&, int) {}

// With `prepare`, every rank's loop has the queue of a toy device, and all have met on it.
std::vector<Outcome> run_forked(int size, const Body& body, const MakeFabric& make,
                                const PrepareQueue& prepare = nullptr);

// The local fabric on a toy device.
std::vector<Outcome> run_on_device(int size, const Body& body,
                                   const PrepareQueue& prepare = as_it_is);

// Ends the calling process as kill -9 would.
Task<> die(Fabric&);

}  // namespace skein::conformance
