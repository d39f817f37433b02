// What a fabric that is made of others passes on to them, in one place.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "fabric/fabric.h"

namespace skein {

// Its messages are those of the others. What an override adds goes beside what this class passes
// on.
class ForwardingFabric : public Fabric {
 public:
  std::string name() const override { return whole_.name(); }
  Traits traits() const override { return whole_.traits(); }
  Time latest_sign() const override;
  void pass_on(Time sign) override;
  std::optional<bool> expel(int peer) override { return whole_.expel(in_whole(peer)); }
  bool expelled(int rank) const override { return whole_.expelled(in_whole(rank)); }
  void fail(const std::string& reason) override;
  std::uint64_t bytes_sent() const override;
  void observe(WaitObserver* observer) override;
  Task<> meet_on_device(Limit limit) override;
  std::string why_staged() const override;
  EventSource* events() override { return whole_.events(); }
  Route route(int peer, Channel channel) override { return whole_.route(in_whole(peer), channel); }
  std::unique_ptr<Memory> allocate_on(Device::Kind kind, std::size_t count, Type type) override {
    return (nearer_ ? *nearer_ : whole_).allocate_on(kind, count, type);
  }

 protected:
  // All ranks of `whole`. `nearer` is another fabric between some of them, which is not made of
  // `whole`, or null. Its memory is the one that all use.
  ForwardingFabric(Fabric& whole, Fabric* nearer, Collectives& collectives);

  // Some ranks of `whole`, in their order here.
  ForwardingFabric(Fabric& whole, std::vector<int> members, Collectives& collectives);

  // The rank of the whole.
  int in_whole(int rank) const {
    return members_.empty() ? rank : members_[static_cast<std::size_t>(rank)];
  }

 private:
  Fabric& whole_;
  Fabric* const nearer_ = nullptr;
  const std::vector<int> members_;  // none: all
};

}  // namespace skein
