#include "fabric/forwarding.h"

#include <algorithm>

namespace skein {

ForwardingFabric::ForwardingFabric(Fabric& whole, Fabric* nearer, Collectives& collectives)
    : Fabric(whole.loop(), whole.rank(), whole.size(), collectives),
      whole_(whole),
      nearer_(nearer) {}

ForwardingFabric::ForwardingFabric(Fabric& whole, std::vector<int> members,
                                   Collectives& collectives)
    : Fabric(whole.loop(),
             static_cast<int>(std::ranges::find(members, whole.rank()) - members.begin()),
             static_cast<int>(members.size()), collectives),
      whole_(whole),
      members_(std::move(members)) {}

Time ForwardingFabric::latest_sign() const {
  const Time sign = whole_.latest_sign();
  return nearer_ ? std::max(sign, nearer_->latest_sign()) : sign;
}

void ForwardingFabric::pass_on(Time sign) {
  whole_.pass_on(sign);
  if (nearer_) nearer_->pass_on(sign);
}

void ForwardingFabric::fail(const std::string& reason) {
  whole_.fail(reason);
  if (nearer_) nearer_->fail(reason);
}

std::uint64_t ForwardingFabric::bytes_sent() const {
  return whole_.bytes_sent() + (nearer_ ? nearer_->bytes_sent() : 0);
}

void ForwardingFabric::observe(WaitObserver* observer) {
  whole_.observe(observer);
  if (nearer_) nearer_->observe(observer);
}

Task<> ForwardingFabric::meet_on_device(Limit limit) {
  co_await whole_.meet_on_device(limit);
  if (nearer_) co_await nearer_->meet_on_device(limit);
}

std::string ForwardingFabric::why_staged() const {
  const std::string why = nearer_ ? nearer_->why_staged() : "";
  return why.empty() ? whole_.why_staged() : why;
}

}  // namespace skein
