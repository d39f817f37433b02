// Strategies on a device whose work is done later, with a driver that computes on a queue of its
// own: what has ended is ordered, not complete, and nobody may take it for more.
#include <gtest/gtest.h>

#include "conformance/harness.h"
#include "kernels/kernels.h"
#include "optimize/sgd.h"
#include "skein/error.h"
#include "strategy/handover.h"
#include "strategy/registry.h"

namespace skein::conformance {
namespace {

using namespace std::chrono_literals;

constexpr double kRate = 0.25;
constexpr int kSteps = 6;
const std::vector<Arena::Parameter> kParameters{{"a", 90000}, {"b", 7}, {"c", 20000}};

void require(bool holds, const std::string& what) {
  if (!holds) throw Error(what);
}

World device_world() {
  for (World& world : worlds())
    if (world.name == "device") return world;
  throw Error("no world has a device");
}

// A driver: on the host, or on the device with a queue for what it computes.
struct Driver {
  Driver(Fabric& fabric, const std::string& name, const StrategyOptions& options, double momentum,
         Queue* its_compute)
      : compute(its_compute),
        handover(fabric.loop(), compute),
        allocate(compute ? allocator(fabric) : Allocate(allocate_on_heap)),
        arena(kParameters, allocate),
        optimizer(arena.size(), {momentum, 0, false}, allocate),
        worker(fabric, arena, optimizer, LearningRate(kRate, Schedule{}), trace, 120s, 0, 5),
        strategy(make_strategy(name, options, worker)),
        background(fabric.loop().spawn_background(strategy->background())) {}

  // A step whose gradients are `slope` everywhere; forward keeps what it reads.
  Task<> step(float slope) {
    co_await strategy->expect(4);
    for (int bucket = 0; bucket < strategy->plan().count(); ++bucket) {
      co_await strategy->need(bucket);
      handover.to_driver(strategy->there(bucket));
    }
    read.push_back(allocate(arena.size()));
    handover.to_driver();
    {
      const OnQueue scope(compute);
      copy(read.back()->span(), arena.parameters());
    }
    co_await strategy->begin_step(4);
    handover.to_driver();
    for (int bucket = 0; bucket < strategy->plan().count(); ++bucket) {
      {
        const OnQueue scope(compute);
        const std::size_t count = strategy->plan().range(bucket).count;
        const auto ones = compute ? compute->allocate(count, Type::f32) : allocate_on_heap(count);
        fill(ones->span(), 1);
        axpy(arena.gradients().at(strategy->plan().range(bucket)), slope, ones->span());
      }
      handover.to_strategy();
      strategy->gradient_ready(bucket);
      co_await worker.loop().yield();  // backward goes on while the bucket leaves
    }
    worker.meters.computed(1ms, 4);
    handover.to_strategy();
    co_await strategy->end_step(4);
    if (!strategy->waits_for_reads()) handover.to_driver();
  }

  Task<> flush() {
    handover.to_strategy();
    co_await strategy->flush();
    handover.to_driver();
  }

  Queue* compute;
  Handover handover;
  Allocate allocate;
  NoTrace trace;
  Arena arena;
  Sgd optimizer;
  Worker worker;
  std::unique_ptr<Strategy> strategy;
  ScopedJob background;
  std::vector<std::unique_ptr<Memory>> read;  // by forward, in each step
};

class OnADevice : public testing::TestWithParam<std::tuple<int, std::string>> {
 protected:
  int size() const { return std::get<0>(GetParam()); }
  const std::string& strategy() const { return std::get<1>(GetParam()); }
};

// Those in which everything follows from the steps have the bits of the host, in every forward.
class LockstepOnADevice : public OnADevice {};

TEST_P(LockstepOnADevice, HasTheBitsOfTheHost) {
  expect_ok(device_world(), size(), [name = strategy()](Fabric& fabric) -> Task<> {
    toy::ToyQueue compute(static_cast<std::uint64_t>(fabric.rank()) + 100, 2);
    StrategyOptions options;
    if (name != "local") options["fusion"] = "64KB";
    Driver host(fabric, name, options, 0.9, nullptr), device(fabric, name, options, 0.9, &compute);
    for (int step = 0; step < kSteps; ++step) {
      const float slope = 0.1F * static_cast<float>(step + 1) + static_cast<float>(fabric.rank());
      co_await host.step(slope);
      co_await device.step(slope);
    }
    co_await host.flush();
    co_await device.flush();
    for (std::size_t step = 0; step < kSteps; ++step)
      require(std::ranges::equal(floats_of(host.read[step]->span()),
                                 floats_of(device.read[step]->span())),
              "forward " + std::to_string(step) + " read something else");
    require(std::ranges::equal(floats_of(host.arena.parameters()),
                               floats_of(device.arena.parameters())),
            "another model");
    require(floats_of(device.arena.parameters())[0] != 0, "nothing was trained");
    fabric.loop().queue()->finish();
    compute.finish();
  });
}

// The others apply each gradient once: a step's is ½^k on all workers, so that no other set of
// gradients has the same sum, and where rounds of them are averaged all are of one step.
Task<> apply_every_gradient_once(Fabric& fabric, std::string name) {
  toy::ToyQueue compute(static_cast<std::uint64_t>(fabric.rank()) + 200, 2);
  const bool rounds = name == "abs";
  Driver device(fabric, name, {}, 0, &compute);
  double expected = 0;
  float slope = 1;
  for (int step = 0; step < kSteps; ++step) {
    if (!rounds) slope /= 2;
    co_await device.step(slope);
    if (name == "gossip" || name == "acid") co_await fabric.loop().sleep_for(2ms);
    expected -= kRate * static_cast<double>(slope);
  }
  co_await device.flush();
  // Gradients of one round are averaged: with equal ones each round moves as far.
  if (rounds) expected = -kRate * static_cast<double>(device.worker.progress.steps);
  for (const Slot& slot : device.arena.slots())
    for (const float x : floats_of(device.arena.parameters().at(slot.range)))
      if (std::abs(static_cast<double>(x) - expected) > 1e-5)
        throw Error(std::to_string(x) + " instead of " + std::to_string(expected));
  fabric.loop().queue()->finish();
  compute.finish();
}

TEST_P(OnADevice, AppliesEveryGradientOnce) {
  expect_ok(device_world(), size(), [name = strategy()](Fabric& fabric) {
    return apply_every_gradient_once(fabric, name);
  });
}

// The same where NCCL carries the sums, and exchanges of gossip go through the host.
class OnNccl : public testing::TestWithParam<std::string> {};

TEST_P(OnNccl, AppliesEveryGradientOnce) {
  expect_ok(nccl_worlds().front(), 3, [name = GetParam()](Fabric& fabric) {
    return apply_every_gradient_once(fabric, name);
  });
}

INSTANTIATE_TEST_SUITE_P(Device, OnNccl, testing::ValuesIn(strategy_names()));

TEST(DearOnNccl, HasTheBitsOfAllreduce) {
  expect_ok(nccl_worlds().front(), 4, [](Fabric& fabric) -> Task<> {
    toy::ToyQueue compute(static_cast<std::uint64_t>(fabric.rank()) + 300, 2);
    const StrategyOptions options{{"fusion", "64KB"}};
    Driver one(fabric, "allreduce", options, 0.9, &compute),
        other(fabric, "dear", options, 0.9, &compute);
    for (int step = 0; step < kSteps; ++step) {
      const float slope = 0.1F * static_cast<float>(step + 1) + static_cast<float>(fabric.rank());
      co_await one.step(slope);
      co_await other.step(slope);
    }
    co_await one.flush();
    co_await other.flush();
    require(
        std::ranges::equal(floats_of(one.arena.parameters()), floats_of(other.arena.parameters())),
        "another model");
    require(floats_of(one.arena.parameters())[0] != 0, "nothing was trained");
    fabric.loop().queue()->finish();
    compute.finish();
  });
}

std::string name_of_device(const testing::TestParamInfo<std::tuple<int, std::string>>& info) {
  return std::to_string(std::get<0>(info.param)) + "_" + std::get<1>(info.param);
}

INSTANTIATE_TEST_SUITE_P(Device, LockstepOnADevice,
                         testing::Combine(testing::Values(1, 2, 3),
                                          testing::Values("allreduce", "dear", "local")),
                         name_of_device);
INSTANTIATE_TEST_SUITE_P(Device, OnADevice,
                         testing::Combine(testing::Values(1, 2, 3),
                                          testing::ValuesIn(strategy_names())),
                         name_of_device);

// Memory of the device kills who touches it, and a number is not there before its work is done.
TEST(ToyDeviceDeathTest, KeepsTheHostOut) {
  EXPECT_DEATH(
      {
        toy::ToyQueue queue(1);
        const auto memory = queue.allocate(100, Type::f32);
        static_cast<float*>(memory->span().data)[3] = 1;
      },
      "");
  EXPECT_DEATH(
      {
        toy::ToyQueue queue(1);
        const auto memory = queue.allocate(100, Type::f32);
        memory->span().host();
      },
      "not floats of the host");
  EXPECT_DEATH(
      {
        toy::ToyQueue queue(1);
        const auto memory = queue.allocate(100, Type::f32);
        fill(memory->span(), 1);
      },
      "no queue of it is in use");
}

}  // namespace
}  // namespace skein::conformance
