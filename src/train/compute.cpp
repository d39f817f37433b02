#include "train/compute.h"

#include <c10/core/impl/VirtualGuardImpl.h>

#include <algorithm>
#include <cstdlib>

#include "cuda/cuda.h"
#include "train/gpus.h"

namespace skein {
namespace {

bool has_convolution(const Model& model) {
  const auto modules = model.modules(false);
  return std::any_of(modules.begin(), modules.end(), [](const auto& each) {
    return each->template as<torch::nn::Conv2dImpl>() != nullptr;
  });
}

// Filling new memory, which torch adds by itself, changes no result of ours.
template <typename Context>
void leave_new_memory(Context& context) {
  if constexpr (requires { context.setDeterministicFillUninitializedMemory(false); })
    context.setDeterministicFillUninitializedMemory(false);
}

// An operator that has no deterministic form is then an error of torch's, which names it.
void be_deterministic() {
  ::setenv("CUBLAS_WORKSPACE_CONFIG", ":4096:8", 0);  // read when cuBLAS is first used
  at::globalContext().setDeterministicCuDNN(true);
  at::globalContext().setBenchmarkCuDNN(false);
  at::globalContext().setDeterministicAlgorithms(true, /*warn_only=*/false);
  leave_new_memory(at::globalContext());
}

}  // namespace

Compute::Compute(const TrainOptions& options, int local_rank)
    : options_(options), precision_(parse_precision(options.precision)) {
  if (options.tf32 != "default") {
    at::globalContext().setAllowTF32CuBLAS(options.tf32 == "on");
    at::globalContext().setAllowTF32CuDNN(options.tf32 == "on");
  }
  const DeviceChoice choice = parse_device(options.device);
  if (choice.kind == DeviceChoice::cpu) return;
  const int gpu = gpu_of_worker(choice, count_gpus(), local_rank);
  if (gpu < 0) return;
  device_ = torch::Device(torch::kCUDA, static_cast<c10::DeviceIndex>(gpu));
  // Else what names no device would go to the first, and take memory there for every worker.
  c10::impl::VirtualGuardImpl(device_.type()).setDevice(device_);
  if (options.deterministic) be_deterministic();
}

// Convolutions of bfloat16 run on units that want a pixel's channels side by side.
void Compute::take(Model& model) {
  model.to(device_);
  const bool helps = on_gpu() && precision_ == Precision::bf16 && !options_.deterministic;
  channels_last_ = has_convolution(model) &&
                   (options_.channels_last == "auto" ? helps : options_.channels_last == "on");
  upload_ = Upload(device_, channels_last_);
}

std::int64_t Compute::memory_in_use() const {
  if (!on_gpu()) return 0;
  return static_cast<std::int64_t>(cuda_memory_in_use(device_.index()));
}

}  // namespace skein
