#include "plan/bucket_plan.h"

#include <fmt/format.h>

#include <string>

#include "core/units.h"
#include "skein/error.h"

namespace skein {

Fusion parse_fusion(std::string_view text) {
  if (text == "auto") return {};
  if (text == "none") return Fusion::none();
  std::size_t bytes = 0;
  try {
    bytes = parse_bytes(text);
  } catch (const ConfigError&) {
  }
  if (bytes == 0)
    throw ConfigError(
        fmt::format("strategy.fusion = '{}': expected auto, none or a size such as 25MB", text));
  return Fusion::of(bytes);
}

BucketPlan::BucketPlan(const Arena& arena, const Fusion& fusion) {
  const auto& slots = arena.slots();
  bucket_of_slot_.resize(slots.size());
  std::size_t end = arena.size();
  int members = 0;
  for (std::size_t i = slots.size(); i-- > 0;) {
    bucket_of_slot_[i] = count();
    ++members;
    const std::size_t begin = i == 0 ? 0 : slots[i].range.offset;
    const std::size_t limit = ranges_.empty() ? fusion.first_bytes : fusion.bytes;
    if (i != 0 && (end - begin) * sizeof(float) < limit) continue;
    ranges_.push_back({begin, end - begin});
    slots_in_.push_back(members);
    end = begin;
    members = 0;
  }
}

}  // namespace skein
