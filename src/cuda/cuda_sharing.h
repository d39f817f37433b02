// Memory of a GPU among processes: blocks by CUDA's handles, counts by operations of streams on
// memory of the host.
#pragma once

#include <map>
#include <mutex>
#include <set>

#include "core/block_pool.h"
#include "core/sharing.h"
#include "cuda/cuda_queue.h"

namespace skein::cuda {

class CudaSharing final : public Sharing {
 public:
  explicit CudaSharing(std::shared_ptr<Stream> stream);
  ~CudaSharing() override;

  std::unique_ptr<Memory> allocate(std::size_t count, Type type) override;
  std::optional<SharedPlace> place_of(Span memory) const override;
  std::unique_ptr<Memory> open(const SharedBlock& block) override;
  void use(SharedCount& count) override;
  void forget(SharedCount& count) override;
  void raise(SharedCount& count, std::uint64_t value) override;
  void wait_for(SharedCount& count, std::uint64_t least) override;

 private:
  class PooledMemory;
  class OpenedMemory;

  const SharedBlock& named(const BlockPool::Part& part) const;

  // Where the device finds a count that is in use.
  void* on_device(SharedCount& count) const;

  std::shared_ptr<Stream> stream_;
  std::shared_ptr<BlockPool> blocks_;
  std::set<SharedCount*> counts_;
  mutable std::mutex mutex_;
  mutable std::map<std::uint32_t, SharedBlock> names_;  // of parts, by number
};

// Memory of the host that the device copies to and from by itself, used again when it is given
// back.
class PinnedPool : public std::enable_shared_from_this<PinnedPool> {
 public:
  explicit PinnedPool(int device) : device_(device) {}
  PinnedPool(const PinnedPool&) = delete;
  PinnedPool& operator=(const PinnedPool&) = delete;
  ~PinnedPool();

  std::unique_ptr<Memory> allocate(std::size_t count, Type type);

 private:
  class Pinned;

  int device_;
  std::mutex mutex_;
  std::vector<void*> parts_;
  BlockPool blocks_{std::size_t{4} << 20};
};

}  // namespace skein::cuda
