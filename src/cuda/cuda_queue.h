// A CUDA stream as a queue: marks are events, memory is given and taken back in the stream's order.
#pragma once

#include <cuda_runtime_api.h>

#include <memory>
#include <mutex>
#include <vector>

#include "core/queue.h"

namespace skein::cuda {

// Throws Error that says what could not be done and why, unless all is well.
void check(cudaError_t error, const char* what);

// Makes a device the calling thread's for as long as it lives: streams take work only from threads
// whose device is theirs.
class OnDevice {
 public:
  explicit OnDevice(int device);
  OnDevice(const OnDevice&) = delete;
  OnDevice& operator=(const OnDevice&) = delete;
  ~OnDevice();

 private:
  int before_ = 0;
  bool changed_ = false;
};

// Events of one device that nobody uses, for the next mark. Thread-safe: marks end anywhere.
class EventPool {
 public:
  explicit EventPool(int device) : device_(device) {}
  EventPool(const EventPool&) = delete;
  EventPool& operator=(const EventPool&) = delete;
  ~EventPool();

  int device() const { return device_; }
  cudaEvent_t take();
  void give_back(cudaEvent_t event);

 private:
  int device_;
  std::mutex mutex_;
  std::vector<cudaEvent_t> free_;
};

// A mark on some stream. Reached is asked of the device, and throws Error when that has failed.
class CudaEvent final : public Event {
 public:
  CudaEvent(std::shared_ptr<EventPool> pool, cudaStream_t stream);
  CudaEvent(const CudaEvent&) = delete;
  CudaEvent& operator=(const CudaEvent&) = delete;
  ~CudaEvent() override;

  bool reached() const override;
  cudaEvent_t event() const { return event_; }

 private:
  std::shared_ptr<EventPool> pool_;
  cudaEvent_t event_;
};

// Doubles of the host that the device writes: where figures arrive.
class FigurePool {
 public:
  FigurePool() = default;
  FigurePool(const FigurePool&) = delete;
  FigurePool& operator=(const FigurePool&) = delete;
  ~FigurePool();

  double* take();
  void give_back(double* place);

 private:
  std::mutex mutex_;
  std::vector<double*> free_, pages_;
};

// The stream, for as long as memory or marks of it live.
struct Stream {
  explicit Stream(int its_device);
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;
  ~Stream();

  int device;
  cudaStream_t handle = nullptr;
};

class CudaKernels;
class CudaSharing;
class PinnedPool;

class CudaQueue final : public Queue {
 public:
  explicit CudaQueue(int device);
  ~CudaQueue() override;

  Device device() const override;
  DeviceKernels& kernels() override;
  Mark record() override;
  void wait(const Mark& mark) override;
  void finish() override;
  std::unique_ptr<Memory> allocate(std::size_t count, Type type) override;
  std::unique_ptr<Memory> allocate_on_host(std::size_t count, Type type) override;
  Sharing* sharing() override;

  cudaStream_t stream() const { return stream_->handle; }

 private:
  std::shared_ptr<Stream> stream_;
  std::shared_ptr<EventPool> events_;
  std::unique_ptr<CudaKernels> kernels_;
  std::unique_ptr<CudaSharing> sharing_;
  std::shared_ptr<PinnedPool> pinned_;
};

}  // namespace skein::cuda
