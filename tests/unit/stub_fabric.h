// A fabric that says what a test has put into it, and keeps what it is told. It has no messages.
#pragma once

#include <algorithm>
#include <cstdlib>
#include <set>
#include <string>

#include "fabric/fabric.h"

namespace skein {

class StubFabric final : public Fabric {
 public:
  StubFabric(Loop& loop, int rank, int size)
      : Fabric(loop, rank, size, collectives_), collectives_(*this) {}

  std::string name() const override { return "stub"; }
  Traits traits() const override { return {.survives_losses = false}; }
  Time latest_sign() const override { return sign; }
  void pass_on(Time heard) override { sign = std::max(sign, heard); }
  std::optional<bool> expel(int peer) override { return lost.insert(peer).second; }
  bool expelled(int peer) const override { return lost.count(peer) > 0; }
  void fail(const std::string& reason) override { failure = reason; }
  std::uint64_t bytes_sent() const override { return bytes; }
  void observe(WaitObserver* its_observer) override { observer = its_observer; }
  Task<> meet_on_device(Limit) override {
    ++meetings;
    co_return;
  }
  std::string why_staged() const override { return staged; }
  EventSource* events() override { return source; }
  Route route(int peer, Channel) override {
    SKEIN_CHECK(false, "a message to or from rank {}", peer);
    std::abort();
  }
  std::unique_ptr<Memory> allocate_on(Device::Kind, std::size_t count, Type type) override {
    ++allocations;
    return allocate_on_heap_of(type, count);
  }

  Time sign{};
  std::set<int> lost;
  std::string failure, staged;
  std::uint64_t bytes = 0;
  WaitObserver* observer = nullptr;
  int meetings = 0, allocations = 0;
  EventSource* source = nullptr;

 private:
  MessageCollectives collectives_;
};

}  // namespace skein
