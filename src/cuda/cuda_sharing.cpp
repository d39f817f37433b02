#include "cuda/cuda_sharing.h"

#include <cuda.h>
#include <cudaTypedefs.h>
#include <fmt/format.h>

#include <bit>
#include <cstring>

#include "core/units.h"
#include "skein/error.h"

namespace skein::cuda {
namespace {

constexpr std::size_t kPart = std::size_t{2} << 20;
constexpr std::size_t kPage = 4096;

static_assert(sizeof(cudaIpcMemHandle_t) == sizeof(SharedBlock::name));

// A function of the driver, which is not linked: programs start where there is none.
template <typename Function>
Function of_driver(const char* name) {
  constexpr unsigned kSince = 11070;
  void* found = nullptr;
  cudaDriverEntryPointQueryResult state{};
  check(cudaGetDriverEntryPointByVersion(name, &found, kSince, cudaEnableDefault, &state), name);
  if (state != cudaDriverEntryPointSuccess || !found)
    throw Error(fmt::format("CUDA: the driver has no {}", name));
  return std::bit_cast<Function>(found);
}

void check_driver(CUresult result, const char* what) {
  if (result != CUDA_SUCCESS)
    throw Error(fmt::format("CUDA: {}: error {} of the driver", what, static_cast<int>(result)));
}

// Counts have pages of their own.
void* page_of(SharedCount& count) {
  const auto address = reinterpret_cast<std::uintptr_t>(&count);
  return reinterpret_cast<void*>(address / kPage * kPage);
}

}  // namespace

// The pool gives the same memory out again, and what clears it comes after all that is on the
// stream.
class CudaSharing::PooledMemory final : public Memory {
 public:
  PooledMemory(const std::shared_ptr<Stream>& stream, std::shared_ptr<BlockPool> blocks,
               std::size_t count, Type type)
      : blocks_(std::move(blocks)),
        span_{nullptr, count, Device(Device::gpu, static_cast<std::uint8_t>(stream->device)),
              type} {
    const OnDevice scope(stream->device);
    span_.data = blocks_->take(span_.bytes(), [](std::size_t bytes) {
      void* memory = nullptr;
      check(cudaMalloc(&memory, bytes), fmt::format("{} for a vector that other workers can read",
                                                    print_bytes(static_cast<double>(bytes)))
                                            .c_str());
      return memory;
    });
    if (span_.bytes() > 0)
      check(cudaMemsetAsync(span_.data, 0, span_.bytes(), stream->handle), "clearing memory");
  }
  PooledMemory(const PooledMemory&) = delete;
  PooledMemory& operator=(const PooledMemory&) = delete;
  ~PooledMemory() override { blocks_->give_back(span_.data); }
  Span span() const override { return span_; }

 private:
  std::shared_ptr<BlockPool> blocks_;
  Span span_;
};

class CudaSharing::OpenedMemory final : public Memory {
 public:
  OpenedMemory(std::shared_ptr<Stream> stream, const SharedBlock& block)
      : stream_(std::move(stream)),
        span_{nullptr, block.bytes, Device(Device::gpu, static_cast<std::uint8_t>(stream_->device)),
              Type::byte} {
    const OnDevice scope(stream_->device);
    cudaIpcMemHandle_t handle;
    std::memcpy(&handle, block.name.data(), sizeof(handle));
    check(cudaIpcOpenMemHandle(&span_.data, handle, cudaIpcMemLazyEnablePeerAccess),
          "opening memory of another process");
  }
  OpenedMemory(const OpenedMemory&) = delete;
  OpenedMemory& operator=(const OpenedMemory&) = delete;
  ~OpenedMemory() override {
    static_cast<void>(cudaStreamSynchronize(stream_->handle));
    static_cast<void>(cudaIpcCloseMemHandle(span_.data));
  }
  Span span() const override { return span_; }

 private:
  std::shared_ptr<Stream> stream_;
  Span span_;
};

CudaSharing::CudaSharing(std::shared_ptr<Stream> stream)
    : stream_(std::move(stream)), blocks_(std::make_shared<BlockPool>(kPart)) {}

CudaSharing::~CudaSharing() {
  for (SharedCount* const count : counts_) static_cast<void>(cudaHostUnregister(page_of(*count)));
}

std::unique_ptr<Memory> CudaSharing::allocate(std::size_t count, Type type) {
  return std::make_unique<PooledMemory>(stream_, blocks_, count, type);
}

std::optional<SharedPlace> CudaSharing::place_of(Span memory) const {
  const auto part = blocks_->part_of(memory.data);
  if (!part) return std::nullopt;
  SharedPlace place{part->number, named(*part), 0};
  place.offset = static_cast<std::uint64_t>(static_cast<std::byte*>(memory.data) - part->begin);
  return place;
}

// Asked of the driver once: every operation wants to know.
const SharedBlock& CudaSharing::named(const BlockPool::Part& part) const {
  const std::lock_guard lock(mutex_);
  const auto [found, added] = names_.try_emplace(part.number);
  if (!added) return found->second;
  const OnDevice scope(stream_->device);
  cudaIpcMemHandle_t handle;
  if (const cudaError_t error = cudaIpcGetMemHandle(&handle, part.begin); error != cudaSuccess) {
    names_.erase(found);
    check(error, "naming memory for other processes");
  }
  std::memcpy(found->second.name.data(), &handle, sizeof(handle));
  found->second.bytes = part.bytes;
  return found->second;
}

std::unique_ptr<Memory> CudaSharing::open(const SharedBlock& block) {
  return std::make_unique<OpenedMemory>(stream_, block);
}

void CudaSharing::use(SharedCount& count) {
  const OnDevice scope(stream_->device);
  check(cudaHostRegister(page_of(count), kPage, cudaHostRegisterPortable | cudaHostRegisterMapped),
        "showing the device memory of the host");
  counts_.insert(&count);
}

void CudaSharing::forget(SharedCount& count) {
  SKEIN_CHECK(counts_.erase(&count) == 1, "a count that is not in use is forgotten");
  const OnDevice scope(stream_->device);
  check(cudaHostUnregister(page_of(count)), "taking memory of the host from the device");
}

void* CudaSharing::on_device(SharedCount& count) const {
  SKEIN_CHECK(counts_.contains(&count), "a count that is not in use");
  void* address = nullptr;
  check(cudaHostGetDevicePointer(&address, &count, 0), "where the device sees memory of the host");
  return address;
}

void CudaSharing::raise(SharedCount& count, std::uint64_t value) {
  static const auto write = of_driver<PFN_cuStreamWriteValue64_v11070>("cuStreamWriteValue64");
  const OnDevice scope(stream_->device);
  check_driver(write(stream_->handle, reinterpret_cast<CUdeviceptr>(on_device(count)), value,
                     CU_STREAM_WRITE_VALUE_DEFAULT),
               "raising a count");
}

void CudaSharing::wait_for(SharedCount& count, std::uint64_t least) {
  static const auto wait = of_driver<PFN_cuStreamWaitValue64_v11070>("cuStreamWaitValue64");
  const OnDevice scope(stream_->device);
  check_driver(wait(stream_->handle, reinterpret_cast<CUdeviceptr>(on_device(count)), least,
                    CU_STREAM_WAIT_VALUE_GEQ),
               "waiting for a count");
}

class PinnedPool::Pinned final : public Memory {
 public:
  Pinned(std::shared_ptr<PinnedPool> pool, Span span) : pool_(std::move(pool)), span_(span) {}
  Pinned(const Pinned&) = delete;
  Pinned& operator=(const Pinned&) = delete;
  ~Pinned() override { pool_->blocks_.give_back(span_.data); }
  Span span() const override { return span_; }

 private:
  std::shared_ptr<PinnedPool> pool_;
  Span span_;
};

PinnedPool::~PinnedPool() {
  for (void* const part : parts_) static_cast<void>(cudaFreeHost(part));
}

std::unique_ptr<Memory> PinnedPool::allocate(std::size_t count, Type type) {
  Span span{nullptr, count, Device::cpu, type};
  span.data = blocks_.take(span.bytes(), [this](std::size_t bytes) {
    const OnDevice scope(device_);
    void* part = nullptr;
    check(cudaHostAlloc(&part, bytes, cudaHostAllocPortable), "memory of the host for copies");
    const std::lock_guard lock(mutex_);
    parts_.push_back(part);
    return part;
  });
  return std::make_unique<Pinned>(shared_from_this(), span);
}

}  // namespace skein::cuda
