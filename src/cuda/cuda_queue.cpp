#include "cuda/cuda_queue.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/units.h"
#include "cuda/cuda.h"
#include "cuda/cuda_kernels.h"
#include "cuda/cuda_sharing.h"
#include "skein/error.h"

namespace skein::cuda {

void check(cudaError_t error, const char* what) {
  if (error == cudaSuccess) return;
  throw Error(
      fmt::format("CUDA: {}: {} ({})", what, cudaGetErrorString(error), cudaGetErrorName(error)));
}

OnDevice::OnDevice(int device) {
  check(cudaGetDevice(&before_), "asking for the thread's device");
  if (before_ == device) return;
  check(cudaSetDevice(device), "choosing a device");
  changed_ = true;
}

OnDevice::~OnDevice() {
  if (changed_) static_cast<void>(cudaSetDevice(before_));
}

EventPool::~EventPool() {
  for (const cudaEvent_t event : free_) static_cast<void>(cudaEventDestroy(event));
}

cudaEvent_t EventPool::take() {
  {
    const std::lock_guard lock(mutex_);
    if (!free_.empty()) {
      const cudaEvent_t event = free_.back();
      free_.pop_back();
      return event;
    }
  }
  const OnDevice scope(device_);
  cudaEvent_t event = nullptr;
  check(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), "making an event");
  return event;
}

void EventPool::give_back(cudaEvent_t event) {
  const std::lock_guard lock(mutex_);
  free_.push_back(event);
}

CudaEvent::CudaEvent(std::shared_ptr<EventPool> pool, cudaStream_t stream)
    : pool_(std::move(pool)), event_(pool_->take()) {
  const OnDevice scope(pool_->device());
  check(cudaEventRecord(event_, stream), "recording an event");
}

CudaEvent::~CudaEvent() { pool_->give_back(event_); }

bool CudaEvent::reached() const {
  const cudaError_t state = cudaEventQuery(event_);
  if (state == cudaErrorNotReady) return false;
  check(state, "what was put on the device before a mark");
  return true;
}

FigurePool::~FigurePool() {
  for (double* const page : pages_) static_cast<void>(cudaFreeHost(page));
}

double* FigurePool::take() {
  constexpr std::size_t kOfAPage = 256;
  const std::lock_guard lock(mutex_);
  if (free_.empty()) {
    void* page = nullptr;
    check(cudaHostAlloc(&page, kOfAPage * sizeof(double), cudaHostAllocPortable),
          "memory of the host for figures");
    pages_.push_back(static_cast<double*>(page));
    for (std::size_t i = 0; i < kOfAPage; ++i) free_.push_back(pages_.back() + i);
  }
  double* const place = free_.back();
  free_.pop_back();
  return place;
}

void FigurePool::give_back(double* place) {
  const std::lock_guard lock(mutex_);
  free_.push_back(place);
}

namespace {

// Its memory goes back in the order of its stream, so that what was put there before finds it.
class CudaMemory final : public Memory {
 public:
  CudaMemory(std::shared_ptr<Stream> stream, std::size_t count, Type type)
      : stream_(std::move(stream)),
        span_{nullptr, count, Device(Device::gpu, static_cast<std::uint8_t>(stream_->device)),
              type} {
    const OnDevice scope(stream_->device);
    const std::size_t bytes = std::max<std::size_t>(span_.bytes(), 1);
    if (const cudaError_t error = cudaMallocAsync(&span_.data, bytes, stream_->handle);
        error != cudaSuccess) {
      static_cast<void>(cudaGetLastError());
      std::size_t free = 0, total = 0;
      static_cast<void>(cudaMemGetInfo(&free, &total));
      throw Error(fmt::format(
          "cuda:{} has no {} for a vector of this worker: {} of its {} are free", stream_->device,
          print_bytes(static_cast<double>(bytes)), print_bytes(static_cast<double>(free)),
          print_bytes(static_cast<double>(total))));
    }
    check(cudaMemsetAsync(span_.data, 0, bytes, stream_->handle), "clearing memory");
  }
  CudaMemory(const CudaMemory&) = delete;
  CudaMemory& operator=(const CudaMemory&) = delete;
  ~CudaMemory() override { static_cast<void>(cudaFreeAsync(span_.data, stream_->handle)); }
  Span span() const override { return span_; }

 private:
  std::shared_ptr<Stream> stream_;
  Span span_;
};

// What is taken and given back all the time stays with the process, up to this many bytes.
void keep_some_memory(int device) {
  std::uint64_t kept = std::uint64_t{256} << 20;
  cudaMemPool_t pool = nullptr;
  check(cudaDeviceGetDefaultMemPool(&pool, device), "asking for the device's memory");
  check(cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &kept),
        "keeping memory of the device");
}

int usable(int device) {
  if (const std::string reason = why_no_cuda(); !reason.empty())
    throw ConfigError(fmt::format("cuda:{} cannot be used: {}", device, reason));
  int count = 0;
  check(cudaGetDeviceCount(&count), "counting devices");
  if (device < 0 || device >= count)
    throw ConfigError(fmt::format("cuda:{}: there is no such device; expected cuda:0{}", device,
                                  count > 1 ? fmt::format(" to cuda:{}", count - 1) : ""));
  return device;
}

}  // namespace

// Among streams of the device this comes first: a sum that others wait for goes before computation.
Stream::Stream(int its_device) : device(its_device) {
  const OnDevice scope(device);
  int least = 0, greatest = 0;
  check(cudaDeviceGetStreamPriorityRange(&least, &greatest), "asking for priorities");
  check(cudaStreamCreateWithPriority(&handle, cudaStreamNonBlocking, greatest), "making a stream");
}

Stream::~Stream() { static_cast<void>(cudaStreamDestroy(handle)); }

CudaQueue::CudaQueue(int device)
    : stream_(std::make_shared<Stream>(usable(device))),
      events_(std::make_shared<EventPool>(device)) {
  keep_some_memory(device);
  kernels_ = std::make_unique<CudaKernels>(*this);
  sharing_ = std::make_unique<CudaSharing>(stream_);
  pinned_ = std::make_shared<PinnedPool>(device);
}

CudaQueue::~CudaQueue() {
  static_cast<void>(cudaStreamSynchronize(stream()));  // memory and figures are in use until then
}

Device CudaQueue::device() const {
  return {Device::gpu, static_cast<std::uint8_t>(stream_->device)};
}

DeviceKernels& CudaQueue::kernels() { return *kernels_; }

Mark CudaQueue::record() { return std::make_shared<CudaEvent>(events_, stream()); }

void CudaQueue::wait(const Mark& mark) { wait_on(stream_->device, stream(), mark); }

void CudaQueue::finish() {
  check(cudaStreamSynchronize(stream()), "what was put on the device's queue");
}

std::unique_ptr<Memory> CudaQueue::allocate(std::size_t count, Type type) {
  return std::make_unique<CudaMemory>(stream_, count, type);
}

std::unique_ptr<Memory> CudaQueue::allocate_on_host(std::size_t count, Type type) {
  return pinned_->allocate(count, type);
}

Sharing* CudaQueue::sharing() { return sharing_.get(); }

}  // namespace skein::cuda

namespace skein {

std::string why_no_cuda() {
  int count = 0;
  const cudaError_t error = cudaGetDeviceCount(&count);
  if (error == cudaSuccess && count > 0) return "";
  static_cast<void>(cudaGetLastError());
  if (error == cudaErrorInsufficientDriver)
    return "NVIDIA's driver is missing, or older than the CUDA that this was built with";
  if (error == cudaErrorNoDevice || error == cudaSuccess) return "no NVIDIA GPU is seen";
  return fmt::format("CUDA says: {}", cudaGetErrorString(error));
}

std::vector<CudaDevice> cuda_devices() {
  if (!why_no_cuda().empty()) return {};
  int count = 0;
  cuda::check(cudaGetDeviceCount(&count), "counting devices");
  std::vector<CudaDevice> all(static_cast<std::size_t>(count));
  for (int index = 0; index < count; ++index) {
    const cuda::OnDevice scope(index);
    cudaDeviceProp properties{};
    cuda::check(cudaGetDeviceProperties(&properties, index), "asking what a device is");
    CudaDevice& device = all[static_cast<std::size_t>(index)];
    device.index = index;
    device.name = properties.name;
    cuda::check(cudaMemGetInfo(&device.free, &device.memory), "asking for a device's memory");
  }
  return all;
}

std::size_t cuda_memory_in_use(int device) {
  const cuda::OnDevice scope(device);
  std::size_t free = 0, all = 0;
  cuda::check(cudaMemGetInfo(&free, &all), "asking for a device's memory");
  return all - free;
}

std::unique_ptr<Queue> make_cuda_queue(int device) {
  return std::make_unique<cuda::CudaQueue>(device);
}

void* stream_of(Queue& queue) {
  auto* const own = dynamic_cast<cuda::CudaQueue*>(&queue);
  SKEIN_CHECK(own, "a queue that is no CUDA stream");
  return own->stream();
}

bool built_with_cuda() { return true; }

std::shared_ptr<void> cuda_on_device(int device) {
  return std::make_shared<cuda::OnDevice>(device);
}

Mark record_on(int device, void* stream) {
  // One pool for each thread and device: torch's streams belong to no queue of ours.
  thread_local std::vector<std::shared_ptr<cuda::EventPool>> pools;
  const auto at = static_cast<std::size_t>(device);
  if (pools.size() <= at) pools.resize(at + 1);
  if (!pools[at]) pools[at] = std::make_shared<cuda::EventPool>(device);
  return std::make_shared<cuda::CudaEvent>(pools[at], static_cast<cudaStream_t>(stream));
}

void wait_on(int device, void* stream, const Mark& mark) {
  if (!mark) return;
  const auto* const event = dynamic_cast<const cuda::CudaEvent*>(mark.get());
  SKEIN_CHECK(event, "a mark that is no CUDA event");
  const cuda::OnDevice scope(device);
  cuda::check(cudaStreamWaitEvent(static_cast<cudaStream_t>(stream), event->event(), 0),
              "making a stream wait");
}

}  // namespace skein
