#include "strategy/strategy.h"

#include "schedule/shares.h"

namespace skein {

std::vector<std::int64_t> Strategy::split(std::int64_t samples) {
  return even_shares(samples, worker_.size());
}

Task<> Strategy::need(int) { co_return; }
Task<> Strategy::flush() { co_return; }
Task<> Strategy::background() { co_return; }

}  // namespace skein
