// Messages on the wire: how fast each moves while others pass the same connections.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <vector>

#include "sim/engine.h"

namespace skein::sim {

// A fluid model: at every moment the flows share the links they pass max-min fairly, that is, no
// flow could get more without taking from one that has no more itself. Rates change only when a
// flow begins or ends, and only among the flows that share a link, directly or through others.
class Traffic final : public Engine::Handler {
 public:
  using LinkId = std::uint32_t;
  using FlowId = std::uint32_t;
  static constexpr std::size_t kMostLinks = 3;

  // Is told when the last byte has passed.
  class Listener {
   public:
    virtual ~Listener() = default;
    virtual void transmitted() = 0;
  };

  explicit Traffic(Engine& engine) : engine_(engine) {}

  LinkId add_link(double bytes_per_second);

  // A flow that always takes these links; idle at first. The listener must outlive this.
  FlowId add_flow(std::vector<LinkId> links, Listener& listener);

  // Sends `bytes` through an idle flow.
  void begin(FlowId flow, double bytes);

  // Takes an active flow off the wire. Returns how many bytes had not passed.
  double halt(FlowId flow);

  bool active(FlowId flow) const { return flows_[flow].active; }

  // Bytes per second since the end of the last instant; 0 for an idle flow.
  double rate(FlowId flow) const { return flows_[flow].active ? flows_[flow].rate : 0; }

  void happen(std::uint64_t token) override;
  void settle() override;

 private:
  struct Link {
    double capacity;
    std::vector<FlowId> flows;  // that are active
    double left = 0;            // while rates are found: capacity not yet given away
    std::uint32_t open = 0;     // and flows without a rate
    std::uint64_t seen = 0;
    bool dirty = false;
  };
  struct Flow {
    std::array<LinkId, kMostLinks> links{};
    std::uint8_t link_count = 0;
    bool active = false;
    std::uint32_t generation = 0;  // of the event that is to end it
    double remaining = 0;          // bytes, at `updated`
    double rate = 0;
    Time updated{};
    std::uint64_t seen = 0;
    bool fixed = false;
    Listener* listener = nullptr;
  };

  void touch(const Flow& flow);
  void detach(FlowId id);
  void gather(LinkId start);
  void find_rates();
  void set_rate(FlowId id, double rate);

  Engine& engine_;
  std::vector<Link> links_;
  std::deque<Flow> flows_;
  std::vector<LinkId> dirty_;
  std::vector<LinkId> component_links_;
  std::vector<FlowId> component_flows_;
  std::uint64_t round_ = 0;
};

}  // namespace skein::sim
