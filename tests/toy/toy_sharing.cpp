#include "toy/toy_sharing.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <thread>

#include "skein/error.h"

namespace skein::toy {
namespace {

// A file of a process.
struct Name {
  int process = 0, file = 0;
};

}  // namespace

class ToySharing::PooledMemory final : public Memory {
 public:
  PooledMemory(ToyQueue& queue, std::shared_ptr<Pool> pool, std::size_t count, Type type)
      : queue_(queue), pool_(std::move(pool)), span_{nullptr, count, kDevice, type} {
    span_.data = pool_->blocks.take(span_.bytes(), [this](std::size_t bytes) {
      auto part = std::make_unique<Block>(new_file(bytes), bytes);
      const std::lock_guard lock(pool_->mutex);
      return pool_->parts.emplace_back(std::move(part))->outside();
    });
    queue_.put([span = span_] {
      if (span.count > 0) std::memset(inside(span).data, 0, span.bytes());
    });
  }
  PooledMemory(const PooledMemory&) = delete;
  PooledMemory& operator=(const PooledMemory&) = delete;
  ~PooledMemory() override { pool_->blocks.give_back(span_.data); }
  Span span() const override { return span_; }

 private:
  ToyQueue& queue_;
  std::shared_ptr<Pool> pool_;
  Span span_;
};

class ToySharing::OpenedMemory final : public Memory {
 public:
  OpenedMemory(ToyQueue& queue, FileDescriptor file, std::size_t bytes)
      : queue_(queue), block_(std::make_shared<Block>(std::move(file), bytes)) {}
  OpenedMemory(const OpenedMemory&) = delete;
  OpenedMemory& operator=(const OpenedMemory&) = delete;
  ~OpenedMemory() override {
    queue_.put([block = std::move(block_)] {});
  }
  Span span() const override { return {block_->outside(), block_->bytes(), kDevice, Type::byte}; }

 private:
  ToyQueue& queue_;
  std::shared_ptr<Block> block_;
};

std::unique_ptr<Memory> ToySharing::allocate(std::size_t count, Type type) {
  return std::make_unique<PooledMemory>(queue_, pool_, count, type);
}

std::optional<SharedPlace> ToySharing::place_of(Span memory) const {
  const auto part = pool_->blocks.part_of(memory.data);
  if (!part) return std::nullopt;
  SharedPlace place{part->number, {{}, part->bytes}, 0};
  place.offset = static_cast<std::uint64_t>(static_cast<std::byte*>(memory.data) - part->begin);
  const std::lock_guard lock(pool_->mutex);
  const Name name{::getpid(), pool_->parts[part->number]->file()};
  std::memcpy(place.block.name.data(), &name, sizeof(name));
  return place;
}

std::unique_ptr<Memory> ToySharing::open(const SharedBlock& block) {
  Name name;
  std::memcpy(&name, block.name.data(), sizeof(name));
  if (!opens_) throw Error("this device sees no memory of others");
  if (name.process == ::getpid()) throw Error("a process cannot open memory of its own");
  FileDescriptor file(
      ::open(fmt::format("/proc/{}/fd/{}", name.process, name.file).c_str(), O_RDWR | O_CLOEXEC));
  if (!file.valid())
    throw Error(
        fmt::format("cannot open memory of process {}: {}", name.process, std::strerror(errno)));
  ++opened_;
  return std::make_unique<OpenedMemory>(queue_, std::move(file), block.bytes);
}

void ToySharing::use(SharedCount& count) { counts_.insert(&count); }

void ToySharing::forget(SharedCount& count) {
  SKEIN_CHECK(counts_.erase(&count) == 1, "a count that is not in use is forgotten");
}

void ToySharing::raise(SharedCount& count, std::uint64_t value) {
  SKEIN_CHECK(counts_.contains(&count), "a count that is not in use is raised");
  queue_.put([&count, value] { count.store(value, std::memory_order_release); });
}

void ToySharing::wait_for(SharedCount& count, std::uint64_t least) {
  SKEIN_CHECK(counts_.contains(&count), "a count that is not in use is waited for");
  if (!waits_) return;
  queue_.put([&count, least] {
    while (count.load(std::memory_order_acquire) < least)
      std::this_thread::sleep_for(std::chrono::microseconds(20));
  });
}

}  // namespace skein::toy
