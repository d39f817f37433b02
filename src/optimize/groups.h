// Parameter groups: parts of the plane with a rate, weight decay or momentum of their own, or
// frozen.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <vector>

#include "core/span.h"

namespace skein {

struct GroupRule {
  Range range;
  double lr_scale = 1;                                // multiplies the learning rate
  std::optional<double> weight_decay = std::nullopt;  // else the optimizer's
  std::optional<double> momentum = std::nullopt;      // likewise
  bool frozen = false;                                // neither parameters nor state change
  std::int64_t missed = 0;  // updates of the run that were made while it was frozen

  bool same_as(const GroupRule& other) const {  // wherever both are
    return lr_scale == other.lr_scale && weight_decay == other.weight_decay &&
           momentum == other.momentum && frozen == other.frozen && missed == other.missed;
  }
};

// Which rule holds where; elements that no rule covers are the optimizer's own. Never changes, so
// that an update under way keeps its rules when the next one gets others. `missed` of a rule counts
// the updates before it became a rule: while it is frozen nobody asks for more.
class Groups {
 public:
  // `rules` are sorted, disjoint and inside a plane of `size` elements (checked). Throws
  // ConfigError for a number that is negative or not finite. Neighbours with nothing but a gap
  // between them may be given as one rule: zeros stay zeros.
  Groups(std::size_t size, std::vector<GroupRule> rules);

  // Calls visit(GroupRule) for the longest pieces of `range` under one rule, in order; the rule's
  // range is the piece.
  template <typename Visit>
  void split(Range range, Visit visit) const {
    auto rule = std::partition_point(rules_.begin(), rules_.end(), [&](const GroupRule& candidate) {
      return candidate.range.end() <= range.offset;
    });
    for (std::size_t start = range.offset; start < range.end(); ++rule) {
      const bool more = rule != rules_.end();
      const std::size_t begin = more ? std::min(rule->range.offset, range.end()) : range.end();
      if (start < begin) visit(GroupRule{.range = {start, begin - start}});
      if (!more) break;
      start = std::max(start, begin);
      const std::size_t end = std::min(rule->range.end(), range.end());
      if (start < end) {
        GroupRule piece = *rule;
        piece.range = {start, end - start};
        visit(piece);
      }
      start = std::max(start, end);
    }
  }

  // Of all rules: equal on workers that have the same.
  std::uint64_t digest() const { return digest_; }

 private:
  std::vector<GroupRule> rules_;
  std::uint64_t digest_;
};

// As Groups::split() for those pieces that are trained; the gradients of frozen ones become zero.
// Null: one piece.
void clear_frozen(const GroupRule& rule, Span gradients);

template <typename Visit>
void for_trained(const Groups* groups, Range range, Span gradients, Visit visit) {
  if (!groups) return visit(GroupRule{.range = range});
  groups->split(range, [&](const GroupRule& rule) {
    rule.frozen ? clear_frozen(rule, gradients) : visit(rule);
  });
}

}  // namespace skein
