#include "optimize/groups.h"

#include <bit>

#include "kernels/kernels.h"
#include "optimize/options.h"

namespace skein {
namespace {

std::uint64_t mixed(std::uint64_t digest, std::uint64_t value) {
  return (std::rotl(digest, 23) ^ value) * 0x9E3779B97F4A7C15ULL;
}

std::uint64_t mixed(std::uint64_t digest, const std::optional<double>& value) {
  return value ? mixed(digest, std::bit_cast<std::uint64_t>(*value)) : mixed(digest, 1);
}

std::uint64_t digest_of(const std::vector<GroupRule>& rules) {
  std::uint64_t digest = 0;
  for (const GroupRule& rule : rules) {
    digest = mixed(mixed(digest, rule.range.offset), rule.range.count);
    // What the update makes of it: rates are used as floats.
    digest = mixed(digest, std::bit_cast<std::uint32_t>(static_cast<float>(rule.lr_scale)));
    digest = mixed(mixed(digest, rule.weight_decay), rule.momentum);
    digest = mixed(digest, rule.frozen ? 1U : 0U);
    digest = mixed(digest, static_cast<std::uint64_t>(rule.missed));
  }
  return digest;
}

}  // namespace

Groups::Groups(std::size_t size, std::vector<GroupRule> rules)
    : rules_(std::move(rules)), digest_(digest_of(rules_)) {
  std::size_t end = 0;
  for (const GroupRule& rule : rules_) {
    SKEIN_CHECK(end <= rule.range.offset && rule.range.offset <= size &&
                    rule.range.count <= size - rule.range.offset,
                "rule for [{}, +{}) after {} in a plane of {}", rule.range.offset, rule.range.count,
                end, size);
    require_not_negative("weight decay of a parameter group", rule.weight_decay.value_or(0));
    require_not_negative("momentum of a parameter group", rule.momentum.value_or(0));
    require_not_negative("learning-rate factor of a parameter group", rule.lr_scale);
    SKEIN_CHECK(rule.missed >= 0, "{} updates missed", rule.missed);
    end = rule.range.end();
  }
}

void clear_frozen(const GroupRule& rule, Span gradients) { fill(gradients.at(rule.range), 0); }

}  // namespace skein
