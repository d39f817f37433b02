// The toy device's memory among processes: files that others open, counts that its queues raise and
// wait for when they come to it.
#pragma once

#include <atomic>
#include <set>

#include "core/block_pool.h"
#include "core/sharing.h"
#include "toy/toy_device.h"
#include "toy/toy_memory.h"

namespace skein::toy {

class ToySharing final : public Sharing {
 public:
  explicit ToySharing(ToyQueue& queue) : queue_(queue), pool_(std::make_shared<Pool>()) {}

  std::unique_ptr<Memory> allocate(std::size_t count, Type type) override;
  std::optional<SharedPlace> place_of(Span memory) const override;
  std::unique_ptr<Memory> open(const SharedBlock& block) override;
  void use(SharedCount& count) override;
  void forget(SharedCount& count) override;
  void raise(SharedCount& count, std::uint64_t value) override;
  void wait_for(SharedCount& count, std::uint64_t least) override;

  // What a test has to do with it: memory of others cannot be opened, as between GPUs that do not
  // see each other; waits are left out, as a program would that takes "ordered" for "complete".
  void open_nothing() { opens_ = false; }
  void wait_for_nothing() { waits_ = false; }

  std::size_t opened() const { return opened_; }  // blocks of others, so far

 private:
  // Parts live as long as any memory of them.
  struct Pool {
    BlockPool blocks{std::size_t{64} << 10};
    std::vector<std::unique_ptr<Block>> parts;  // by number
    std::mutex mutex;
  };
  class PooledMemory;
  class OpenedMemory;

  ToyQueue& queue_;
  std::shared_ptr<Pool> pool_;
  std::set<SharedCount*> counts_;
  bool opens_ = true, waits_ = true;
  std::size_t opened_ = 0;
};

}  // namespace skein::toy
