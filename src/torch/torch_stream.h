// Torch's streams and Skein's queues: what torch computes on a device, and the order between both.
#pragma once

#include <torch/torch.h>

#include <memory>
#include <string>

#include "core/queue.h"

namespace skein {

// Why torch cannot compute on GPUs here, or Skein cannot follow it there; empty where both can.
std::string why_no_torch_cuda();

Device device_of(const torch::Device& device);  // ConfigError for what is neither CPU nor CUDA
torch::Device torch_device_of(Device device);

// A tensor over the values of a span, which it does not own.
torch::Tensor tensor_over(Span span);

// The same with an owner, which goes when the last tensor has gone and a device has done what was
// put there until then.
torch::Tensor tensor_that_holds(std::shared_ptr<const void> owner, Span span);

// What torch computes on one device, on whichever stream is the calling thread's current one. On
// the host there is nothing to order: marks are null.
class TorchStream {
 public:
  explicit TorchStream(Device device) : device_(device) {}

  bool on_device() const { return device_.kind == Device::gpu; }
  Device device() const { return device_; }

  // The stream itself (a cudaStream_t); null on the host.
  void* current() const;

  // Behind what this thread has had torch compute so far.
  Mark record() const;

  // What this thread has torch compute from now on comes after `mark`.
  void wait(const Mark& mark) const;

  // Blocks until the device has done all that anybody put there.
  void finish() const;

 private:
  Device device_;
};

// While it lives, what this thread has torch compute goes to `queue`; null: nothing changes.
class TorchOnQueue {
 public:
  explicit TorchOnQueue(Queue* queue);
  TorchOnQueue(const TorchOnQueue&) = delete;
  TorchOnQueue& operator=(const TorchOnQueue&) = delete;
  ~TorchOnQueue();

 private:
  struct Guard;
  std::unique_ptr<Guard> guard_;
};

}  // namespace skein
