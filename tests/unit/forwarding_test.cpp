// What fabrics that are made of others pass on to them: signs of progress, without which a limit of
// silence is a hard time-out for whatever stands on them, bytes, observers, reasons and losses.
#include "fabric/forwarding.h"

#include <gtest/gtest.h>

#include "fabric/group.h"
#include "fabric/levels.h"
#include "fabric/nccl/nccl_fabric.h"
#include "unit/stub_fabric.h"

namespace skein {
namespace {

using namespace std::chrono_literals;

class NoObserver final : public WaitObserver {
 public:
  void waiting(const char*, int) override {}
  void resumed() override {}
};

class NoEvents final : public EventSource {
 public:
  std::uint32_t poll() override { return 0; }
  void wait(std::uint32_t, Time) override {}
  void wake() override {}
};

class Forwarding : public testing::Test {
 protected:
  std::unique_ptr<StubFabric> stub(int rank, int size) {
    auto made = std::make_unique<StubFabric>(loop_, rank, size);
    parts_.push_back(made.get());
    return made;
  }

  void expect_signs(Fabric& fabric) {
    for (StubFabric* latest : parts_) {
      for (StubFabric* each : parts_) each->sign = Time(5s);
      latest->sign = Time(7s);
      EXPECT_EQ(fabric.latest_sign(), Time(7s));
    }
    fabric.pass_on(Time(9s));
    for (StubFabric* each : parts_) EXPECT_EQ(each->sign, Time(9s));
    clock_.advance_to(Time(11s));
    fabric.progressed();
    for (StubFabric* each : parts_) EXPECT_EQ(each->sign, Time(11s));
  }

  void expect_bytes_and_observer(Fabric& fabric) {
    std::uint64_t bytes = 0;
    for (StubFabric* each : parts_) bytes += each->bytes = 100 + bytes;
    EXPECT_EQ(fabric.bytes_sent(), bytes);
    NoObserver observer;
    fabric.observe(&observer);
    for (StubFabric* each : parts_) EXPECT_EQ(each->observer, &observer);
  }

  void expect_reasons(Fabric& fabric) {
    fabric.fail("because");
    for (StubFabric* each : parts_) EXPECT_EQ(each->failure, "because");
    EXPECT_EQ(fabric.why_staged(), "");
    for (StubFabric* each : parts_) {
      each->staged = "no device";
      EXPECT_EQ(fabric.why_staged(), "no device");
      each->staged.clear();
    }
  }

  // `rank` of the fabric is `in_whole` of the first part.
  void expect_losses(Fabric& fabric, int rank, int in_whole) {
    EXPECT_FALSE(fabric.expelled(rank));
    EXPECT_EQ(fabric.expel(rank), true);
    EXPECT_EQ(parts_.front()->lost, std::set{in_whole});
    EXPECT_TRUE(fabric.expelled(rank));
    EXPECT_EQ(fabric.expel(rank), false);
  }

  void expect_the_rest(Fabric& fabric) {
    NoEvents events;
    parts_.front()->source = &events;
    EXPECT_EQ(fabric.events(), &events);
    EXPECT_EQ(fabric.name(), "stub");
    EXPECT_FALSE(fabric.traits().survives_losses);
    (void)fabric.allocate(1);
    EXPECT_EQ(parts_.back()->allocations, 1) << "of the nearest part";
  }

  void expect_all(Fabric& fabric, int rank, int in_whole) {
    expect_signs(fabric);
    expect_bytes_and_observer(fabric);
    expect_reasons(fabric);
    expect_losses(fabric, rank, in_whole);
    expect_the_rest(fabric);
  }

  void meet(Fabric& fabric) {
    const Job job = loop_.spawn(fabric.meet_on_device(kNever));
    loop_.run_ready();
    ASSERT_TRUE(job.done());
    job.rethrow();
  }

  ManualClock clock_;
  Loop loop_{clock_};
  std::vector<StubFabric*> parts_;
};

TEST_F(Forwarding, GroupPassesEverythingOn) {
  const auto whole = stub(2, 4);
  const auto group = group_of(*whole, {0, 2, 3});
  EXPECT_EQ(group->rank(), 1);
  EXPECT_EQ(group->size(), 3);
  expect_all(*group, 2, 3);
  meet(*group);
  EXPECT_EQ(whole->meetings, 0) << "all ranks of the whole meet, not those of a group";
}

TEST_F(Forwarding, LevelsPassEverythingOnToBoth) {
  auto whole = stub(1, 4), inside = stub(1, 2);
  LevelsFabric levels(std::move(whole), std::move(inside), Hosts({0, 0, 1, 1}));
  expect_all(levels, 3, 3);
  meet(levels);
  EXPECT_EQ(parts_[0]->meetings, 1);
  EXPECT_EQ(parts_[1]->meetings, 1);
}

TEST_F(Forwarding, LevelsOfAWorkerAloneOnItsHostPassEverythingOn) {
  LevelsFabric levels(stub(1, 2), Hosts({0, 1}));
  expect_all(levels, 0, 0);
}

TEST_F(Forwarding, LevelsOfOneFabricCountItsBytesOnce) {
  LevelsFabric levels(stub(1, 4), Hosts({0, 0, 1, 1}));
  expect_all(levels, 3, 3);
}

TEST_F(Forwarding, NcclPassesEverythingOnToItsControlPlane) {
  const nccl::Api never_called{};
  NcclFabric nccl(stub(1, 2), never_called, false);
  expect_all(nccl, 0, 0);
}

}  // namespace
}  // namespace skein
