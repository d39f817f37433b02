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

constexpr std::size_t kCacheLine = 64;
constexpr std::size_t kCacheLineFloats = kCacheLine / sizeof(float);

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
  LargeMemory(std::size_t count, Type type) : span_{nullptr, count, Device::cpu, type} {
    if (span_.bytes() >= kWorthAsking) require_memory(span_.bytes(), "a vector of this worker");
    span_.data =
        ::mmap(nullptr, span_.bytes(), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (span_.data == MAP_FAILED) throw std::bad_alloc();
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
  HeapMemory(std::size_t count, Type type) : span_{nullptr, count, Device::cpu, type} {
    const std::size_t lines =
        std::max((span_.bytes() + kCacheLine - 1) / kCacheLine, std::size_t{1});
    span_.data = std::aligned_alloc(kCacheLine, lines * kCacheLine);
    if (!span_.data) throw std::bad_alloc();
    std::memset(span_.data, 0, lines * kCacheLine);
  }
  HeapMemory(const HeapMemory&) = delete;
  HeapMemory& operator=(const HeapMemory&) = delete;
  ~HeapMemory() override { std::free(span_.data); }
  Span span() const override { return span_; }

 private:
  Span span_;
};

class AbsentMemory final : public Memory {
 public:
  AbsentMemory(std::size_t count, Type type) : span_{nullptr, count, Device::absent, type} {}
  Span span() const override { return span_; }

 private:
  Span span_;
};

}  // namespace

std::unique_ptr<Memory> allocate_on_heap(std::size_t count) {
  return allocate_on_heap_of(Type::f32, count);
}

std::unique_ptr<Memory> allocate_on_heap_of(Type type, std::size_t count) {
  if (count >= kLarge / size_of(type)) return std::make_unique<LargeMemory>(count, type);
  return std::make_unique<HeapMemory>(count, type);
}

// Large blocks begin on a page.
void give_back_pages(Span block, Range range) {
  if (block.bytes() < kLarge || block.device != Device::cpu) return;
  const std::size_t first = block.at({0, range.offset}).bytes() / kPage * kPage;
  const std::size_t last = block.at({0, range.end()}).bytes();
  auto* const begin = static_cast<std::byte*>(block.data);
  if (last / kPage * kPage > first)
    ::madvise(begin + first, last / kPage * kPage - first, MADV_DONTNEED);
}

std::unique_ptr<Memory> allocate_absent(std::size_t count) {
  return allocate_absent_of(Type::f32, count);
}

std::unique_ptr<Memory> allocate_absent_of(Type type, std::size_t count) {
  return std::make_unique<AbsentMemory>(count, type);
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
