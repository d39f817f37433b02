// Workers on several hosts, some of which share one.
#pragma once

#include <memory>

#include "fabric/levels.h"

namespace skein {

// Where workers of `whole` share hosts, and not all are on one: the fabric that makes use of it
// (fabric/levels.h), if that is `wanted`. Otherwise `whole` itself: who asks for a network on a
// single host wants that. All workers call it, before anything else is done with the fabric. Drives
// the loop meanwhile. Throws ConfigError when not all want the same, IoError when one does not
// answer within `patience`.
std::unique_ptr<Fabric> with_shared_hosts(std::unique_ptr<Fabric> whole, bool wanted,
                                          Duration patience);

// The same where it is known who shares what. `run_id` is that of this worker's host and run.
std::unique_ptr<Fabric> with_shared_hosts(std::unique_ptr<Fabric> whole, const Hosts& hosts,
                                          const std::string& run_id, Duration patience);

}  // namespace skein
