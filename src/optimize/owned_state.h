// An optimizer's state vectors for the part of the plane that it owns.
#pragma once

#include <algorithm>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "core/arena.h"

namespace skein {

// Ranges of a plane, sorted and disjoint, and where they lie in a vector that holds them one after
// the other. Empty ranges are dropped.
class OwnedRanges {
 public:
  OwnedRanges(std::size_t size, std::vector<Range> ranges);

  const std::vector<Range>& ranges() const { return ranges_; }
  std::size_t count() const { return count_; }  // elements of them all

  // Calls visit(Range of the plane, Range of the vector) for each piece of `range`.
  // Aborts if part of `range` is not owned.
  template <typename Visit>
  void split(Range range, Visit visit) const {
    std::size_t start = range.offset;
    for (std::size_t i = first_ending_after(start); start < range.end(); ++i) {
      SKEIN_CHECK(i < ranges_.size() && ranges_[i].offset <= start,
                  "update of [{}, +{}): element {} is not owned", range.offset, range.count, start);
      const std::size_t count = std::min(ranges_[i].end(), range.end()) - start;
      visit(Range{start, count}, Range{offsets_[i] + start - ranges_[i].offset, count});
      start += count;
    }
  }

  // Where `range`, which must lie in one of them, lies in the vector.
  Range place_of(Range range) const;

  // How many elements of the vector lie before element `element` of the plane.
  std::size_t before(std::size_t element) const;

 private:
  std::size_t first_ending_after(std::size_t element) const;

  std::vector<Range> ranges_;
  std::vector<std::size_t> offsets_;  // of each range in the vector
  std::size_t count_ = 0;
};

// Whether a vector of that name holds means or sums of squared gradients, as Skein's and torch's
// optimizers name them. What others hold is a momentum.
bool holds_squares(const std::string& name);

// As many zeroed vectors as there are names, each holding the owned ranges one after the other.
// Memory is taken when first needed, so that own() right after construction never holds the whole.
class OwnedState {
 public:
  // Owns the whole of a plane of `size` elements. Vectors are where `allocate` puts them.
  OwnedState(std::size_t size, std::vector<std::string> names,
             Allocate allocate = allocate_on_heap);

  // See Optimizer. Takes no more memory than what is kept has, and a few pages.
  void own(std::vector<Range> ranges);
  const std::vector<Range>& owned() const { return owned_.ranges(); }
  std::map<std::string, Span> vectors();

  template <typename Visit>
  void split(Range range, Visit visit) const {
    owned_.split(range, visit);
  }

  // Where `range`, all in one owned range, lies in each vector.
  Range place_of(Range range) const { return owned_.place_of(range); }

  // The `index`-th vector in the order of the names.
  Span vector(std::size_t index);
  std::size_t vector_count() const { return names_.size(); }
  const std::vector<std::string>& names() const { return names_; }

  class Move;

 private:
  std::size_t size_;
  std::vector<std::string> names_;
  Allocate allocate_;
  OwnedRanges owned_;
  std::vector<std::unique_ptr<Memory>> memory_;
};

// A change of what is owned, made piece by piece by whoever brings values from elsewhere too. From
// its start the state is that of the new ranges, zero until written; what was there before can be
// read until it is forgotten, or this is destroyed.
class OwnedState::Move {
 public:
  Move(OwnedState& state, std::vector<Range> ranges);

  // Of what `from` holds, for a plane that is laid out otherwise in `state`, which has nothing yet
  // and the same vectors. `from` keeps nothing.
  Move(OwnedState& from, OwnedState& state);

  // Elements `range` of the plane (of `from`; of `state`) in the `vector`-th vector. All of it must
  // lie in one range that was owned before, or is now.
  Span before(std::size_t vector, Range range);
  Span now(std::size_t vector, Range range);

  // Whether there was anything but zeros.
  bool had(std::size_t vector) const { return memory_[vector] != nullptr; }

  // What lay before element `end` of the plane is not read again: its memory goes back.
  void forget(std::size_t vector, std::size_t end);

 private:
  OwnedState& state_;
  OwnedRanges owned_;
  std::vector<std::unique_ptr<Memory>> memory_;
  std::vector<std::size_t> forgotten_;  // elements of each vector
};

}  // namespace skein
