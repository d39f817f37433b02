// A fabric that carries its messages itself: `local`, `tcp`, `mpi`, the virtual cluster's.
#pragma once

#include <atomic>
#include <memory>
#include <string>

#include "fabric/carrier.h"
#include "fabric/fabric.h"

namespace skein {

// Its collectives are made of messages, unless it overrides them.
class CarrierFabric : public Fabric, public Carrier, protected MessageCollectives {
 public:
  CarrierFabric(Loop& loop, int rank, int size)
      : Fabric(loop, rank, size, static_cast<MessageCollectives&>(*this)),
        Carrier(loop),
        MessageCollectives(static_cast<Fabric&>(*this)) {}

  Traits traits() const override { return {}; }
  std::optional<bool> expel(int) override { return std::nullopt; }
  bool expelled(int) const override { return false; }
  Task<> meet_on_device(Limit) override { co_return; }
  std::string why_staged() const override { return ""; }
  EventSource* events() override { return nullptr; }
  std::uint64_t bytes_sent() const final { return bytes_sent_.load(std::memory_order_relaxed); }
  void observe(WaitObserver* observer) final { observer_ = observer; }
  Route route(int peer, Channel channel) final { return {*this, peer, channel}; }
  std::unique_ptr<Memory> allocate_on(Device::Kind kind, std::size_t count, Type type) override {
    return kind == Device::gpu ? loop().queue()->allocate(count, type)
                               : allocate_on_heap_of(type, count);
  }

 protected:
  void count_sent(std::size_t bytes) { bytes_sent_.fetch_add(bytes, std::memory_order_relaxed); }
  WaitObserver* observer() const { return observer_; }

 private:
  WaitObserver* observer_ = nullptr;
  std::atomic<std::uint64_t> bytes_sent_{0};
};

}  // namespace skein
