#include "fabric/nccl/library.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <cstdlib>

#include "cuda/cuda.h"

namespace skein::nccl {
namespace {

Stream cuda_stream_of(Queue& queue) { return skein::stream_of(queue); }

// False: there is no such function in the library.
template <typename Function>
bool find(void* library, const char* name, Function& function) {
  function = reinterpret_cast<Function>(::dlsym(library, name));
  return function != nullptr;
}

// The name of the first that is missing; null: none is.
const char* fill(void* library, Api& api) {
  const auto missing = [&](const char* name, auto& function) {
    return find(library, name, function) ? nullptr : name;
  };
  for (const char* const name :
       {missing("ncclGetUniqueId", api.get_unique_id),
        missing("ncclCommInitRankConfig", api.comm_init_rank_config),
        missing("ncclCommGetAsyncError", api.comm_get_async_error),
        missing("ncclCommFinalize", api.comm_finalize),
        missing("ncclCommDestroy", api.comm_destroy), missing("ncclCommAbort", api.comm_abort),
        missing("ncclGetErrorString", api.get_error_string),
        missing("ncclGetLastError", api.get_last_error), missing("ncclGroupStart", api.group_start),
        missing("ncclGroupEnd", api.group_end), missing("ncclReduce", api.reduce),
        missing("ncclBroadcast", api.broadcast), missing("ncclReduceScatter", api.reduce_scatter),
        missing("ncclAllGather", api.all_gather), missing("ncclSend", api.send),
        missing("ncclRecv", api.recv)})
    if (name) return name;
  api.stream_of = cuda_stream_of;
  api.on_device = cuda_on_device;
  return nullptr;
}

std::string print_version(int version) {
  return fmt::format("{}.{}.{}", version / 10000, version / 100 % 100, version % 100);
}

Library look_for() {
  static Api api;
  Library found;
  if (!built_with_cuda()) {
    found.missing =
        "it was built without CUDA: install NVIDIA's CUDA toolkit (nvcc), configure again";
    return found;
  }
  const char* const chosen = std::getenv("SKEIN_NCCL");
  const char* const name = chosen && *chosen ? chosen : "libnccl.so.2";
  void* const library = ::dlopen(name, RTLD_LAZY | RTLD_LOCAL);
  if (!library) {
    const char* const why = ::dlerror();
    found.missing = fmt::format(
        "NVIDIA's NCCL was not found: looked for {} as the dynamic linker does ({}); expected its "
        "folder in LD_LIBRARY_PATH, or its path in SKEIN_NCCL",
        name, why ? why : "no reason is given");
    return found;
  }
  Result (*get_version)(int*) = nullptr;
  int version = 0;
  const char* absent = find(library, "ncclGetVersion", get_version) ? nullptr : "ncclGetVersion";
  if (!absent && get_version(&version) != Result::success) absent = "an answer of ncclGetVersion";
  if (!absent && version < kLeastVersion) {
    found.missing = fmt::format("{} is NCCL {}; expected {} or newer", name, print_version(version),
                                print_version(kLeastVersion));
    return found;
  }
  if (!absent) absent = fill(library, api);
  if (absent) {
    found.missing = fmt::format("{} has no {}; expected NCCL {} or newer", name, absent,
                                print_version(kLeastVersion));
    return found;
  }
  found.api = &api;
  found.version = print_version(version);
  return found;
}

}  // namespace

const Library& library() {
  static const Library found = look_for();
  return found;
}

}  // namespace skein::nccl
