#include "optimize/groups.h"

#include "optimize/options.h"

namespace skein {

Groups::Groups(std::size_t size, double default_weight_decay, std::vector<GroupRule> rules)
    : default_weight_decay_(default_weight_decay), rules_(std::move(rules)) {
  require_not_negative("weight decay", default_weight_decay);
  std::size_t end = 0;
  for (const GroupRule& rule : rules_) {
    SKEIN_CHECK(end <= rule.range.offset && rule.range.offset <= size &&
                    rule.range.count <= size - rule.range.offset,
                "rule for [{}, +{}) after {} in a plane of {}", rule.range.offset, rule.range.count,
                end, size);
    require_not_negative("weight decay of a parameter group", rule.weight_decay);
    require_not_negative("learning-rate scale of a parameter group", rule.lr_scale);
    end = rule.range.end();
  }
}

}  // namespace skein
