// NVIDIA's NCCL, found when the program runs.
#pragma once

#include <string>

#include "fabric/nccl/api.h"

namespace skein::nccl {

struct Library {
  const Api* api = nullptr;  // null: there is none
  std::string version;       // "2.26.2"
  std::string missing;       // why, what was looked for, and how to get it
};

// libnccl.so.2 or what SKEIN_NCCL names, as the dynamic linker finds it: once for the process.
const Library& library();

}  // namespace skein::nccl
