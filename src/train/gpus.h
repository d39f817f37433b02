// Which GPUs a job can use, and which of them a worker takes. No torch here, so that the command
// line can ask.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace skein {

struct Gpu {
  std::string name;
  std::int64_t memory_bytes = 0, free_bytes = 0;
};

struct Gpus {
  int count = 0;             // cuda:0, cuda:1, …
  std::vector<Gpu> devices;  // all of them, or none where nobody asked what they are
  std::string why_none;      // in words; empty where there are some
  bool in_torch = false;     // whether this LibTorch was built with CUDA
};

// Starts the driver: a process that forks afterwards has no CUDA in its children.
// count_gpus() takes no memory of any; find_gpus() may, of each.
Gpus count_gpus();
Gpus find_gpus();

// Counted by a child of this process, which is untouched by it. Not where other threads run.
Gpus count_gpus_in_a_child();

// What --device says.
struct DeviceChoice {
  enum Kind { cpu, cuda, automatic };
  Kind kind = automatic;
  int index = -1;  // of cuda:K
};

// "cpu", "cuda", "cuda:K" or "auto". ConfigError for anything else.
DeviceChoice parse_device(const std::string& text);

// The GPU on which a worker computes that is number `local_rank` on its host, or -1 for the CPU:
// with auto and cuda the workers of a host take its GPUs in turn. ConfigError, which says why,
// where a GPU is asked for that is not there.
int gpu_of_worker(const DeviceChoice& choice, const Gpus& gpus, int local_rank);

}  // namespace skein
