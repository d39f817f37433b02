// Whether the workers of several hosts can use NCCL: all find out together.
#pragma once

#include <memory>

#include "fabric/fabric.h"

namespace skein {

// The nccl fabric over `control`, where every worker has NCCL and a GPU; else `control` itself. All
// workers call it, before anything else is done with the fabric. Drives the loop meanwhile. Throws
// IoError when one does not answer within `patience`.
std::unique_ptr<Fabric> with_nccl_where_all_have_it(std::unique_ptr<Fabric> control,
                                                    Duration patience);

}  // namespace skein
