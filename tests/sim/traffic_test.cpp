#include "sim/traffic.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <vector>

#include "core/rng.h"

namespace skein::sim {
namespace {

using namespace std::chrono_literals;

// Flows over links, with the times at which they end.
class Wires {
 public:
  Traffic::LinkId link(double capacity) {
    capacities_.push_back(capacity);
    return traffic.add_link(capacity);
  }
  Traffic::FlowId flow(std::vector<Traffic::LinkId> links) {
    listeners_.push_back(std::make_unique<Listener>(engine));
    paths_.push_back(links);
    return traffic.add_flow(std::move(links), *listeners_.back());
  }
  void settle() {
    engine.run([] { return true; }, {});
  }
  void finish() {
    engine.run([] { return false; }, {});
  }
  Duration ended(Traffic::FlowId flow) const { return listeners_[flow]->at; }

  double used(Traffic::LinkId link) const {
    double sum = 0;
    for (Traffic::FlowId flow = 0; flow < paths_.size(); ++flow)
      if (passes(flow, link)) sum += traffic.rate(flow);
    return sum;
  }
  // The flow has a link that is full and on which nobody is faster.
  bool has_bottleneck(Traffic::FlowId flow) const {
    constexpr double kRounding = 1e-9;
    return std::any_of(paths_[flow].begin(), paths_[flow].end(), [&](Traffic::LinkId link) {
      if (used(link) < capacities_[link] * (1 - kRounding)) return false;
      for (Traffic::FlowId other = 0; other < paths_.size(); ++other)
        if (passes(other, link) && traffic.rate(other) > traffic.rate(flow) * (1 + kRounding))
          return false;
      return true;
    });
  }
  void expect_fair() const {
    for (Traffic::LinkId link = 0; link < capacities_.size(); ++link)
      EXPECT_LE(used(link), capacities_[link] * (1 + 1e-9)) << "link " << link;
    for (Traffic::FlowId flow = 0; flow < paths_.size(); ++flow)
      EXPECT_TRUE(!traffic.active(flow) || has_bottleneck(flow)) << "flow " << flow;
  }

  Engine engine;
  Traffic traffic{engine};

 private:
  struct Listener final : Traffic::Listener {
    explicit Listener(Engine& its_engine) : engine(its_engine) {}
    void transmitted() override { at = engine.now() - Time(); }
    Engine& engine;
    Duration at{-1};
  };
  bool passes(Traffic::FlowId flow, Traffic::LinkId link) const {
    return std::find(paths_[flow].begin(), paths_[flow].end(), link) != paths_[flow].end();
  }

  std::vector<double> capacities_;
  std::vector<std::vector<Traffic::LinkId>> paths_;
  std::vector<std::unique_ptr<Listener>> listeners_;
};

// Links of 10, 6 and 20. On the second, two flows get 3 each; the first of them leaves 7 of the
// first link to another flow; the second leaves 17 of the third link to another.
TEST(Traffic, SharesAreMaxMinFairInAnExampleByHand) {
  Wires wires;
  const auto a = wires.link(10), b = wires.link(6), c = wires.link(20);
  const auto ab = wires.flow({a, b}), bc = wires.flow({b, c}), only_a = wires.flow({a}),
             only_c = wires.flow({c});
  for (const auto flow : {ab, bc, only_a, only_c}) wires.traffic.begin(flow, 21);
  wires.settle();
  EXPECT_DOUBLE_EQ(wires.traffic.rate(ab), 3);
  EXPECT_DOUBLE_EQ(wires.traffic.rate(bc), 3);
  EXPECT_DOUBLE_EQ(wires.traffic.rate(only_a), 7);
  EXPECT_DOUBLE_EQ(wires.traffic.rate(only_c), 17);
  wires.finish();
  EXPECT_EQ(wires.ended(only_a), 3s);
  EXPECT_EQ(wires.ended(only_c), Duration((21'000'000'000 + 16) / 17));
  EXPECT_EQ(wires.ended(ab), 7s);
  EXPECT_EQ(wires.ended(bc), 7s);
}

TEST(Traffic, AFlowThatEndsLeavesItsShareToTheOthers) {
  Wires wires;
  const auto link = wires.link(100);
  const auto first = wires.flow({link}), second = wires.flow({link});
  wires.traffic.begin(first, 100);
  wires.traffic.begin(second, 200);
  wires.finish();
  EXPECT_EQ(wires.ended(first), 2s);
  EXPECT_EQ(wires.ended(second), 3s);
}

TEST(Traffic, AHaltedFlowKeepsWhatHadNotPassed) {
  Wires wires;
  const auto link = wires.link(100);
  const auto first = wires.flow({link}), second = wires.flow({link});
  wires.traffic.begin(first, 100);
  wires.traffic.begin(second, 100);
  double left = 0;
  wires.engine.schedule(Time() + 1s, [&] { left = wires.traffic.halt(first); });
  wires.engine.schedule(Time() + 5s, [&] { wires.traffic.begin(first, left); });
  wires.finish();
  EXPECT_DOUBLE_EQ(left, 50);
  EXPECT_EQ(wires.ended(second), 1500ms);
  EXPECT_EQ(wires.ended(first), 5500ms);
}

TEST(Traffic, NothingPassesEarly) {
  Wires wires;
  const auto link = wires.link(3e9);
  const auto flow = wires.flow({link});
  wires.traffic.begin(flow, 10);  // 3.33 ns
  wires.finish();
  EXPECT_EQ(wires.ended(flow), 4ns);
}

TEST(Traffic, FlowsThatShareNothingDoNotMatterToEachOther) {
  Wires wires;
  const auto a = wires.link(10), b = wires.link(10);
  const auto first = wires.flow({a}), second = wires.flow({b});
  wires.traffic.begin(first, 10);
  wires.engine.schedule(Time() + 300ms, [&] { wires.traffic.begin(second, 10); });
  wires.finish();
  EXPECT_EQ(wires.ended(first), 1s);
  EXPECT_EQ(wires.ended(second), 1300ms);
}

// 200 random networks; in each, flows begin and are halted, one after the other: rates that are
// found again for a part of the network only must stay fair everywhere.
TEST(Traffic, SharesAreMaxMinFairInRandomNetworks) {
  Rng rng(1);
  for (int round = 0; round < 200; ++round) {
    SCOPED_TRACE(round);
    Wires wires;
    const auto link_count = static_cast<std::uint32_t>(1 + rng.below(8));
    for (std::uint32_t i = 0; i < link_count; ++i) wires.link(rng.uniform(1, 100));
    const auto flow_count = static_cast<Traffic::FlowId>(1 + rng.below(12));
    for (Traffic::FlowId i = 0; i < flow_count; ++i) {
      auto links = rng.permutation(link_count);
      links.resize(std::min<std::size_t>(links.size(), 1 + rng.below(Traffic::kMostLinks)));
      wires.traffic.begin(wires.flow(links), 1e6);
    }
    wires.settle();
    wires.expect_fair();
    for (int change = 0; change < 5; ++change) {
      const auto flow = static_cast<Traffic::FlowId>(rng.below(flow_count));
      wires.traffic.active(flow) ? void(wires.traffic.halt(flow)) : wires.traffic.begin(flow, 1e6);
      wires.settle();
      wires.expect_fair();
    }
    if (HasFailure()) return;
  }
}

TEST(Traffic, AsManyBytesPassAsALinkCanCarry) {
  Rng rng(2);
  Wires wires;
  const auto link = wires.link(1000);
  double bytes = 0;
  for (int i = 0; i < 50; ++i) {
    const double size = rng.uniform(1, 5000);
    bytes += size;
    wires.traffic.begin(wires.flow({link}), size);
  }
  wires.finish();
  Duration last{};
  for (Traffic::FlowId flow = 0; flow < 50; ++flow) last = std::max(last, wires.ended(flow));
  EXPECT_NEAR(seconds(last), bytes / 1000, 50 * 1e-9);
}

}  // namespace
}  // namespace skein::sim
