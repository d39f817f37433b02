// Parameter groups: parts of the plane with a weight decay or learning rate of their own.
#pragma once

#include <algorithm>
#include <vector>

#include "core/span.h"

namespace skein {

struct GroupRule {
  Range range;
  double weight_decay = 0;
  double lr_scale = 1;  // multiplies the learning rate
};

// Which rule holds where: elements that no rule covers have the default weight decay and scale 1.
class Groups {
 public:
  // `rules` are sorted, disjoint and inside a plane of `size` elements (checked). Throws
  // ConfigError for a weight decay or scale that is negative or not finite.
  Groups(std::size_t size, double default_weight_decay, std::vector<GroupRule> rules);

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
      if (start < begin) visit(GroupRule{{start, begin - start}, default_weight_decay_, 1});
      if (!more) break;
      start = std::max(start, begin);
      const std::size_t end = std::min(rule->range.end(), range.end());
      if (start < end) visit(GroupRule{{start, end - start}, rule->weight_decay, rule->lr_scale});
      start = std::max(start, end);
    }
  }

 private:
  double default_weight_decay_;
  std::vector<GroupRule> rules_;
};

}  // namespace skein
