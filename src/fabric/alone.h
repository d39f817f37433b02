// The fabric of a world of one: there is nobody to talk to.
#pragma once

#include <cstdlib>

#include "fabric/fabric.h"

namespace skein {

class AloneFabric final : public Fabric {
 public:
  explicit AloneFabric(Loop& loop) : Fabric(loop, 0, 1, collectives_), collectives_(*this) {}

  std::string name() const override { return "alone"; }
  Traits traits() const override { return {}; }
  Time latest_sign() const override { return {}; }
  void pass_on(Time) override {}
  std::optional<bool> expel(int) override { return std::nullopt; }
  bool expelled(int) const override { return false; }
  void fail(const std::string&) override {}
  std::uint64_t bytes_sent() const override { return 0; }
  void observe(WaitObserver*) override {}
  Task<> meet_on_device(Limit) override { co_return; }
  std::string why_staged() const override { return ""; }
  EventSource* events() override { return nullptr; }
  Route route(int peer, Channel) override {
    SKEIN_CHECK(false, "a message to or from rank {} of 1", peer);
    std::abort();
  }
  std::unique_ptr<Memory> allocate_on(Device::Kind kind, std::size_t count, Type type) override {
    return kind == Device::gpu ? loop().queue()->allocate(count, type)
                               : allocate_on_heap_of(type, count);
  }

 private:
  MessageCollectives collectives_;
};

}  // namespace skein
