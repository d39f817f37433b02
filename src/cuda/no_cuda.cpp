// In builds without CUDA, in place of the rest of this folder.
#include <cstdlib>

#include "cuda/cuda.h"
#include "skein/error.h"

namespace skein {

std::string why_no_cuda() {
  return "it was built without CUDA: install NVIDIA's CUDA toolkit (nvcc), configure again";
}

bool built_with_cuda() { return false; }
std::vector<CudaDevice> cuda_devices() { return {}; }
std::size_t cuda_memory_in_use(int) { return 0; }
std::shared_ptr<void> cuda_on_device(int) { return nullptr; }

std::unique_ptr<Queue> make_cuda_queue(int device) {
  throw ConfigError(fmt::format("cuda:{} cannot be used: {}", device, why_no_cuda()));
}

void* stream_of(Queue&) {
  SKEIN_CHECK(false, "{}", why_no_cuda());
  std::abort();
}
Mark record_on(int, void*) { return nullptr; }
void wait_on(int, void*, const Mark&) {}
std::unique_ptr<DeviceTimes> make_device_times(int device, const Clock&) {
  throw ConfigError(fmt::format("cuda:{} cannot be used: {}", device, why_no_cuda()));
}

}  // namespace skein
