#include "optimize/owned_state.h"

#include <utility>

#include "kernels/kernels.h"

namespace skein {

OwnedRanges::OwnedRanges(std::size_t size, std::vector<Range> ranges) : ranges_(std::move(ranges)) {
  std::erase_if(ranges_, [](const Range& range) { return range.count == 0; });
  std::size_t end = 0;
  for (const Range& range : ranges_) {
    SKEIN_CHECK(end <= range.offset && range.offset <= size && range.count <= size - range.offset,
                "own [{}, +{}) after {} in a plane of {}", range.offset, range.count, end, size);
    end = range.end();
    offsets_.push_back(count_);
    count_ += range.count;
  }
}

std::size_t OwnedRanges::first_ending_after(std::size_t element) const {
  const auto range =
      std::partition_point(ranges_.begin(), ranges_.end(),
                           [&](const Range& candidate) { return candidate.end() <= element; });
  return static_cast<std::size_t>(range - ranges_.begin());
}

Range OwnedRanges::place_of(Range range) const {
  const std::size_t i = first_ending_after(range.offset);
  SKEIN_CHECK(
      i < ranges_.size() && ranges_[i].offset <= range.offset && range.end() <= ranges_[i].end(),
      "[{}, +{}) does not lie in one owned range", range.offset, range.count);
  return {offsets_[i] + range.offset - ranges_[i].offset, range.count};
}

std::size_t OwnedRanges::before(std::size_t element) const {
  const std::size_t i = first_ending_after(element);
  if (i == ranges_.size()) return count_;
  return offsets_[i] + (element > ranges_[i].offset ? element - ranges_[i].offset : 0);
}

bool holds_squares(const std::string& name) {
  return name.find("sq") != std::string::npos || name == "sum";
}

OwnedState::OwnedState(std::size_t size, std::vector<std::string> names, Allocate allocate)
    : size_(size),
      names_(std::move(names)),
      allocate_(std::move(allocate)),
      owned_(size, {{0, size}}),
      memory_(names_.size()) {}

void OwnedState::own(std::vector<Range> ranges) {
  std::erase_if(ranges, [](const Range& range) { return range.count == 0; });
  if (ranges == owned()) return;
  const std::vector<Range> old = owned();
  Move move(*this, std::move(ranges));
  for (std::size_t vector = 0; vector < vector_count(); ++vector) {
    if (!move.had(vector)) continue;
    for (std::size_t i = 0, j = 0; i < old.size() && j < owned().size();) {
      const Range &a = old[i], &b = owned()[j];
      const std::size_t start = std::max(a.offset, b.offset), end = std::min(a.end(), b.end());
      if (start < end) {
        const Range kept{start, end - start};
        copy(move.now(vector, kept), move.before(vector, kept));
        move.forget(vector, end);
      }
      a.end() < b.end() ? ++i : ++j;
    }
    move.forget(vector, size_);
  }
}

std::map<std::string, Span> OwnedState::vectors() {
  std::map<std::string, Span> result;
  for (std::size_t i = 0; i < names_.size(); ++i) result[names_[i]] = vector(i);
  return result;
}

Span OwnedState::vector(std::size_t index) {
  auto& memory = memory_.at(index);
  if (!memory) memory = allocate_(owned_.count());
  return memory->span();
}

OwnedState::Move::Move(OwnedState& state, std::vector<Range> ranges)
    : state_(state),
      owned_(std::exchange(state.owned_, OwnedRanges(state.size_, std::move(ranges)))),
      memory_(
          std::exchange(state.memory_, std::vector<std::unique_ptr<Memory>>(state.vector_count()))),
      forgotten_(state.vector_count()) {}

OwnedState::Move::Move(OwnedState& from, OwnedState& state)
    : state_(state),
      owned_(from.owned_),
      memory_(
          std::exchange(from.memory_, std::vector<std::unique_ptr<Memory>>(from.vector_count()))),
      forgotten_(from.vector_count()) {
  SKEIN_CHECK(from.names_ == state.names_, "state of {} vectors moves to one of {}",
              from.vector_count(), state.vector_count());
}

Span OwnedState::Move::before(std::size_t vector, Range range) {
  auto& memory = memory_.at(vector);
  if (!memory) memory = state_.allocate_(owned_.count());
  return memory->span().at(owned_.place_of(range));
}

Span OwnedState::Move::now(std::size_t vector, Range range) {
  return state_.vector(vector).at(state_.owned_.place_of(range));
}

void OwnedState::Move::forget(std::size_t vector, std::size_t end) {
  if (!memory_[vector]) return;
  std::size_t& forgotten = forgotten_[vector];
  const std::size_t until = owned_.before(end);
  if (until <= forgotten) return;
  give_back_pages(memory_[vector]->span(), {forgotten, until - forgotten});
  forgotten = until;
}

}  // namespace skein
