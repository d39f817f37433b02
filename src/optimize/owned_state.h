// An optimizer's state vectors for the part of the plane that it owns.
#pragma once

#include <algorithm>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "core/arena.h"

namespace skein {

// As many zeroed vectors as there are names, each holding the owned ranges one after the other.
// Memory is taken when first needed, so that own() right after construction never holds the whole.
class OwnedState {
 public:
  // Owns the whole of a plane of `size` elements.
  OwnedState(std::size_t size, std::vector<std::string> names);

  // See Optimizer. Empty ranges are dropped.
  void own(std::vector<Range> ranges);
  const std::vector<Range>& owned() const { return owned_; }
  std::map<std::string, Span> vectors();

  // Calls visit(Range of the plane, Range of the state vectors) for each piece of `range`.
  // Aborts if part of `range` is not owned.
  template <typename Visit>
  void split(Range range, Visit visit) const {
    std::size_t start = range.offset;
    for (std::size_t i = first_ending_after(start); start < range.end(); ++i) {
      SKEIN_CHECK(i < owned_.size() && owned_[i].offset <= start,
                  "update of [{}, +{}): element {} is not owned", range.offset, range.count, start);
      const std::size_t count = std::min(owned_[i].end(), range.end()) - start;
      visit(Range{start, count}, Range{offsets_[i] + start - owned_[i].offset, count});
      start += count;
    }
  }

  // The `index`-th vector in the order of the names.
  Span vector(std::size_t index);

 private:
  // Index of the first owned range that ends after `element`.
  std::size_t first_ending_after(std::size_t element) const;
  void lay_out(std::vector<Range> ranges);

  std::size_t size_;
  std::vector<std::string> names_;
  std::vector<Range> owned_;
  std::vector<std::size_t> offsets_;  // of each owned range in the state vectors
  std::size_t count_ = 0;             // elements of each
  std::vector<std::unique_ptr<Memory>> memory_;
};

}  // namespace skein
