// In builds in which LibTorch or Skein has no CUDA.
#include "core/check.h"
#include "cuda/cuda.h"
#include "torch/torch_graph.h"
#include "torch/torch_stream.h"

namespace skein {

std::string why_no_torch_cuda() {
  if (torch::cuda::is_available()) return why_no_cuda();
  return "this LibTorch was built without CUDA: build Skein with one that has it (docs/gpus.md)";
}

void* TorchStream::current() const { return nullptr; }
Mark TorchStream::record() const { return nullptr; }
void TorchStream::wait(const Mark&) const {}
void TorchStream::finish() const {}

struct TorchOnQueue::Guard {};
TorchOnQueue::TorchOnQueue(Queue*) {}
TorchOnQueue::~TorchOnQueue() = default;

struct TorchGraphs::Pool {};
TorchGraphs::TorchGraphs() = default;
TorchGraphs::~TorchGraphs() = default;
std::unique_ptr<TorchGraphs::Graph> TorchGraphs::record(const std::function<void()>&) {
  SKEIN_CHECK(false, "a graph is recorded without CUDA");
  return nullptr;
}

}  // namespace skein
