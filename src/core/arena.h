// The whole model as one vector: parameters in one plane, gradients in another, and as many more
// planes of the same shape as a strategy asks for.
#pragma once

#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "core/span.h"

namespace skein {

// Owns memory until destroyed. A fabric may hand out memory that its peers can read directly.
class Memory {
 public:
  virtual ~Memory() = default;
  virtual Span span() const = 0;
};

// Returns zeroed memory for `count` floats, 64-byte aligned.
using Allocate = std::function<std::unique_ptr<Memory>(std::size_t count)>;

// Ordinary memory of this process, likewise. What is never touched of a large block takes none.
std::unique_ptr<Memory> allocate_on_heap(std::size_t count);
std::unique_ptr<Memory> allocate_on_heap_of(Type type, std::size_t count);

// Nothing of a block of allocate_on_heap() is needed any more from the page in which `range` begins
// to the range's end: the system gets the whole pages of that back. For a caller that goes through
// the block from one end to the other, range by range.
void give_back_pages(Span block, Range range);

// None at all: spans of Device::absent.
std::unique_ptr<Memory> allocate_absent(std::size_t count);
std::unique_ptr<Memory> allocate_absent_of(Type type, std::size_t count);

// One parameter tensor's place in every plane.
struct Slot {
  std::string name;
  Range range;
};

// Lays out `counts` one after the other, each start aligned to a cache line (the gaps stay zero:
// they travel and are updated with the rest, and zero gradients keep them zero).
// Not thread-safe. Planes keep their address for the arena's life.
class Arena {
 public:
  struct Parameter {
    std::string name;
    std::size_t count;
  };

  Arena(const std::vector<Parameter>& parameters, Allocate allocate);

  const std::vector<Slot>& slots() const { return slots_; }
  std::size_t size() const { return size_; }  // elements of a plane, gaps included

  Span parameters() const { return parameters_->span(); }
  Span gradients() const { return gradients_->span(); }

  // The extra plane of that name, made (zeroed) when first asked for.
  Span plane(const std::string& name);

  // Memory of planes beyond parameters and gradients.
  std::size_t extra_planes() const { return planes_.size(); }

  // Index into slots() of the parameter that holds element `offset`, or -1 for a gap.
  int slot_at(std::size_t offset) const;

 private:
  Allocate allocate_;
  std::vector<Slot> slots_;
  std::size_t size_ = 0;
  std::unique_ptr<Memory> parameters_, gradients_;
  std::map<std::string, std::unique_ptr<Memory>> planes_;
};

}  // namespace skein
