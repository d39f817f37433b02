#include "sim/buffers.h"

#include <algorithm>
#include <bit>

#include "kernels/kernels.h"

namespace skein::sim {
namespace {

constexpr std::size_t kMostKept = 1024;  // of a size

// Few sizes serve all messages: one is at most an eighth larger than what it is for.
std::size_t floats_for(std::size_t bytes) {
  const std::size_t step = std::max<std::size_t>(64, std::bit_floor(bytes) / 8);
  return (bytes + step - 1) / step * step / sizeof(float);
}

}  // namespace

std::unique_ptr<Memory> Buffers::copy_of(Span source) {
  const bool on_host = source.device == Device::cpu;
  const std::size_t count = floats_for(source.bytes());
  auto& free = (on_host ? of_host_ : of_device_)[count];
  std::unique_ptr<Memory> memory;
  if (free.empty()) {
    memory = on_host ? allocate_on_heap(count) : queue_->allocate(count, Type::f32);
  } else {
    memory = std::move(free.back());
    free.pop_back();
  }
  copy({memory->span().data, source.count, source.device, source.type}, source);
  return memory;
}

void Buffers::give_back(std::unique_ptr<Memory> memory) {
  const Span span = memory->span();
  auto& free = (span.device == Device::cpu ? of_host_ : of_device_)[span.count];
  if (free.size() < kMostKept) free.push_back(std::move(memory));
}

}  // namespace skein::sim
