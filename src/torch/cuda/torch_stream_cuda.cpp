// Torch's current CUDA stream, where LibTorch has CUDA and Skein has.
#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>

#include "cuda/cuda.h"
#include "torch/torch_stream.h"

namespace skein {
namespace {

c10::DeviceIndex index_of(Device device) { return static_cast<c10::DeviceIndex>(device.index); }

}  // namespace

std::string why_no_torch_cuda() {
  if (const std::string reason = why_no_cuda(); !reason.empty()) return reason;
  return torch::cuda::is_available() ? "" : "LibTorch sees no CUDA device";
}

void* TorchStream::current() const {
  return on_device() ? c10::cuda::getCurrentCUDAStream(index_of(device_)).stream() : nullptr;
}

Mark TorchStream::record() const {
  return on_device() ? record_on(device_.index, current()) : nullptr;
}

void TorchStream::wait(const Mark& mark) const {
  if (on_device() && mark) wait_on(device_.index, current(), mark);
}

void TorchStream::finish() const {
  if (!on_device()) return;
  const c10::cuda::CUDAGuard scope(index_of(device_));
  c10::cuda::device_synchronize();
}

struct TorchOnQueue::Guard {
  explicit Guard(Queue& queue)
      : stream(c10::cuda::getStreamFromExternal(static_cast<cudaStream_t>(stream_of(queue)),
                                                index_of(queue.device()))) {}
  c10::cuda::CUDAStreamGuard stream;
};

TorchOnQueue::TorchOnQueue(Queue* queue) {
  if (queue) guard_ = std::make_unique<Guard>(*queue);
}
TorchOnQueue::~TorchOnQueue() = default;

}  // namespace skein
