#include "core/arena.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <new>

#include "core/host_memory.h"

namespace skein {
namespace {

constexpr std::size_t kCacheLineFloats = 16;

std::size_t align(std::size_t count) {
  return (count + kCacheLineFloats - 1) / kCacheLineFloats * kCacheLineFloats;
}

// From this size on, blocks come straight from the system, zeroed when they are touched.
constexpr std::size_t kLarge = std::size_t{1} << 20;
constexpr std::size_t kPage = 4096;

// From this size on it is asked first whether the host has so much.
constexpr std::size_t kWorthAsking = std::size_t{64} << 20;

class LargeMemory final : public Memory {
 public:
  explicit LargeMemory(std::size_t count) : span_{nullptr, count} {
    if (span_.bytes() >= kWorthAsking) require_memory(span_.bytes(), "a vector of this worker");
    void* const data =
        ::mmap(nullptr, span_.bytes(), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (data == MAP_FAILED) throw std::bad_alloc();
    span_.data = static_cast<float*>(data);
  }
  LargeMemory(const LargeMemory&) = delete;
  LargeMemory& operator=(const LargeMemory&) = delete;
  ~LargeMemory() override { ::munmap(span_.data, span_.bytes()); }
  Span span() const override { return span_; }

 private:
  Span span_;
};

class HeapMemory final : public Memory {
 public:
  explicit HeapMemory(std::size_t count) : count_(count) {
    const std::size_t bytes = std::max<std::size_t>(align(count), kCacheLineFloats) * sizeof(float);
    data_.reset(static_cast<float*>(std::aligned_alloc(64, bytes)));
    if (!data_) throw std::bad_alloc();
    std::memset(data_.get(), 0, bytes);
  }
  Span span() const override { return {data_.get(), count_}; }

 private:
  struct Free {
    void operator()(float* data) const { std::free(data); }
  };
  std::size_t count_;
  std::unique_ptr<float, Free> data_;
};

class AbsentMemory final : public Memory {
 public:
  explicit AbsentMemory(std::size_t count) : count_(count) {}
  Span span() const override { return {nullptr, count_, Device::absent}; }

 private:
  std::size_t count_;
};

}  // namespace

std::unique_ptr<Memory> allocate_on_heap(std::size_t count) {
  if (count >= kLarge / sizeof(float)) return std::make_unique<LargeMemory>(count);
  return std::make_unique<HeapMemory>(count);
}

// Large blocks begin on a page.
void give_back_pages(Span block, Range range) {
  if (block.bytes() < kLarge) return;
  const std::size_t first = range.offset * sizeof(float) / kPage * kPage;
  const std::size_t last = block.at(range).bytes() + range.offset * sizeof(float);
  auto* const begin = reinterpret_cast<std::byte*>(block.data);
  if (last / kPage * kPage > first)
    ::madvise(begin + first, last / kPage * kPage - first, MADV_DONTNEED);
}

std::unique_ptr<Memory> allocate_absent(std::size_t count) {
  return std::make_unique<AbsentMemory>(count);
}

Arena::Arena(const std::vector<Parameter>& parameters, Allocate allocate)
    : allocate_(std::move(allocate)) {
  for (const Parameter& parameter : parameters) {
    slots_.push_back({parameter.name, {size_, parameter.count}});
    size_ += align(parameter.count);
  }
  parameters_ = allocate_(size_);
  gradients_ = allocate_(size_);
}

Span Arena::plane(const std::string& name) {
  auto& memory = planes_[name];
  if (!memory) memory = allocate_(size_);
  return memory->span();
}

int Arena::slot_at(std::size_t offset) const {
  const auto after = std::upper_bound(
      slots_.begin(), slots_.end(), offset,
      [](std::size_t value, const Slot& slot) { return value < slot.range.offset; });
  // An empty parameter shares its offset with the next one; the last of those holds the element.
  if (after == slots_.begin()) return -1;
  const Slot& slot = *(after - 1);
  return offset < slot.range.end() ? static_cast<int>(after - slots_.begin()) - 1 : -1;
}

}  // namespace skein
