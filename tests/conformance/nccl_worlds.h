// The nccl fabric with a stand-in for NCCL (toy/toy_nccl.h): at most 4 ranks.
#pragma once

#include "conformance/forked.h"
#include "toy/toy_nccl.h"

namespace skein::conformance {

std::vector<Outcome> run_on_nccl(int size, const Body& body,
                                 const PrepareQueue& prepare = as_it_is);

}  // namespace skein::conformance
