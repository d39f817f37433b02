#include "sim/traffic.h"

#include <algorithm>
#include <cmath>

#include "core/check.h"

namespace skein::sim {

Traffic::LinkId Traffic::add_link(double bytes_per_second) {
  SKEIN_CHECK(bytes_per_second > 0, "a link of {} bytes/s", bytes_per_second);
  links_.push_back({.capacity = bytes_per_second, .flows = {}});
  return static_cast<LinkId>(links_.size() - 1);
}

Traffic::FlowId Traffic::add_flow(std::vector<LinkId> links, Listener& listener) {
  SKEIN_CHECK(!links.empty() && links.size() <= kMostLinks, "a flow over {} links", links.size());
  Flow flow;
  std::copy(links.begin(), links.end(), flow.links.begin());
  flow.link_count = static_cast<std::uint8_t>(links.size());
  flow.listener = &listener;
  flows_.push_back(flow);
  return static_cast<FlowId>(flows_.size() - 1);
}

void Traffic::touch(const Flow& flow) {
  for (std::size_t i = 0; i < flow.link_count; ++i) {
    Link& link = links_[flow.links[i]];
    if (!link.dirty) dirty_.push_back(flow.links[i]);
    link.dirty = true;
  }
  engine_.settle_later(*this);
}

void Traffic::begin(FlowId id, double bytes) {
  Flow& flow = flows_[id];
  SKEIN_CHECK(!flow.active, "a flow begins twice");
  flow.active = true;
  flow.remaining = bytes;
  flow.rate = 0;
  flow.updated = engine_.now();
  for (std::size_t i = 0; i < flow.link_count; ++i) links_[flow.links[i]].flows.push_back(id);
  touch(flow);
}

void Traffic::detach(FlowId id) {
  Flow& flow = flows_[id];
  flow.active = false;
  ++flow.generation;
  for (std::size_t i = 0; i < flow.link_count; ++i) {
    auto& on_link = links_[flow.links[i]].flows;
    const auto place = std::find(on_link.begin(), on_link.end(), id);
    *place = on_link.back();
    on_link.pop_back();
  }
  touch(flow);
}

double Traffic::halt(FlowId id) {
  Flow& flow = flows_[id];
  SKEIN_CHECK(flow.active, "a flow that is idle is halted");
  const double passed = flow.rate * seconds(engine_.now() - flow.updated);
  detach(id);
  return std::max(0.0, flow.remaining - passed);
}

void Traffic::happen(std::uint64_t token) {
  const auto id = static_cast<FlowId>(token);
  Flow& flow = flows_[id];
  if (!flow.active || flow.generation != token >> 32) return;
  detach(id);
  flow.listener->transmitted();
}

// All links and active flows that hang together with `start`.
void Traffic::gather(LinkId start) {
  component_links_.assign(1, start);
  component_flows_.clear();
  links_[start].seen = round_;
  for (std::size_t next = 0; next < component_links_.size(); ++next) {
    for (const FlowId id : links_[component_links_[next]].flows) {
      Flow& flow = flows_[id];
      if (flow.seen == round_) continue;
      flow.seen = round_;
      component_flows_.push_back(id);
      for (std::size_t i = 0; i < flow.link_count; ++i) {
        Link& link = links_[flow.links[i]];
        if (link.seen == round_) continue;
        link.seen = round_;
        component_links_.push_back(flow.links[i]);
      }
    }
  }
}

// Progressive filling: the link that has least to offer to each of its flows settles theirs; what
// they leave on their other links is shared by the rest.
void Traffic::find_rates() {
  for (const LinkId id : component_links_) {
    links_[id].left = links_[id].capacity;
    links_[id].open = static_cast<std::uint32_t>(links_[id].flows.size());
  }
  for (const FlowId id : component_flows_) flows_[id].fixed = false;
  for (std::size_t settled = 0; settled < component_flows_.size();) {
    Link* tightest = nullptr;
    double share = 0;
    for (const LinkId id : component_links_) {
      Link& link = links_[id];
      if (link.open == 0) continue;
      const double offer = link.left / link.open;
      if (!tightest || offer < share) {
        tightest = &link;
        share = offer;
      }
    }
    SKEIN_CHECK(tightest, "{} flows without a rate pass no link",
                component_flows_.size() - settled);
    for (const FlowId id : tightest->flows) {
      Flow& flow = flows_[id];
      if (flow.fixed) continue;
      flow.fixed = true;
      ++settled;
      for (std::size_t i = 0; i < flow.link_count; ++i) {
        links_[flow.links[i]].left -= share;
        --links_[flow.links[i]].open;
      }
      set_rate(id, share);
    }
  }
}

void Traffic::set_rate(FlowId id, double rate) {
  Flow& flow = flows_[id];
  if (flow.rate == rate) return;
  const Time now = engine_.now();
  flow.remaining = std::max(0.0, flow.remaining - flow.rate * seconds(now - flow.updated));
  flow.updated = now;
  flow.rate = rate;
  ++flow.generation;
  // Never early: a nanosecond of rounding must not deliver what has not passed.
  const double ns = std::ceil(flow.remaining / rate * 1e9 - 1e-3);
  const Time end = now + Duration(static_cast<Duration::rep>(std::max(0.0, ns)));
  engine_.schedule(end, *this, (std::uint64_t{flow.generation} << 32) | id);
}

void Traffic::settle() {
  ++round_;
  for (const LinkId id : dirty_) {
    links_[id].dirty = false;
    if (links_[id].seen == round_ || links_[id].flows.empty()) continue;
    gather(id);
    find_rates();
  }
  dirty_.clear();
}

}  // namespace skein::sim
