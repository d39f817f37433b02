#include "fabric/local/joint_events.h"

#include <algorithm>

#include "core/check.h"

namespace skein {

JointEvents::JointEvents(LocalFabric& inside, Fabric& elsewhere)
    : inside_(inside), elsewhere_(elsewhere), elsewhere_events_(*elsewhere.events()) {
  SKEIN_CHECK(elsewhere_events_.also(inside.doorbell().descriptor()),
              "{} cannot sleep with another fabric", elsewhere.name());
}

std::uint32_t JointEvents::poll() {
  inside_.pass_on(elsewhere_.latest_sign());
  elsewhere_.pass_on(inside_.latest_sign());
  const std::uint64_t inside = inside_.doorbell().poll();
  const std::uint64_t elsewhere = elsewhere_events_.poll();
  tickets_.store(inside << 32U | elsewhere, std::memory_order_release);
  return polls_.fetch_add(1, std::memory_order_acq_rel) + 1;
}

// When another thread has polled since, there may be something to do.
void JointEvents::wait(std::uint32_t ticket, Time until) {
  const std::uint64_t both = tickets_.load(std::memory_order_acquire);
  if (polls_.load(std::memory_order_acquire) != ticket) return;
  if (!inside_.doorbell().arm(static_cast<std::uint32_t>(both >> 32U))) return;
  until = std::min(until, SteadyClock().now() + shm::Doorbell::kLookAround);
  elsewhere_events_.wait(static_cast<std::uint32_t>(both), until);
}

}  // namespace skein
