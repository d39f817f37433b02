#include "train/threads.h"

#include <ATen/Parallel.h>
#include <dlfcn.h>

namespace skein {

void use_threads(int count) {
  at::set_num_threads(count);
  // Torch does not tell an OpenBLAS that has threads of its own. Our launcher does, by its
  // environment; others do not, and a simulation has none.
  if (void* set = dlsym(RTLD_DEFAULT, "openblas_set_num_threads"))
    reinterpret_cast<void (*)(int)>(set)(count);
}

}  // namespace skein
