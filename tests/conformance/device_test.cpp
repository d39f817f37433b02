// Strategies on a device whose work is done later, where the program computes on a queue of its
// own: what has ended is ordered, not complete, and nobody may take it for more.
#include <gtest/gtest.h>

#include "conformance/harness.h"
#include "kernels/kernels.h"
#include "skein/error.h"
#include "toy/trainer.h"

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

// Trains on the host, or on the device with a queue for what it computes.
struct Trainee : toy::Trainer {
  Trainee(Fabric& fabric, const std::string& name, const StrategyOptions& options, double momentum,
          Queue* its_compute)
      : Trainee(fabric, name, options, momentum, its_compute,
                its_compute ? planes_of(fabric) : Allocate(allocate_on_heap)) {}

  Trainee(Fabric& fabric, const std::string& name, const StrategyOptions& options, double momentum,
          Queue* its_compute, const Allocate& its_allocate)
      : Trainer(fabric, kParameters, name, options,
                {.rate = kRate,
                 .momentum = momentum,
                 .seed = 5,
                 .allocate = its_allocate,
                 .compute = its_compute}),
        compute(its_compute),
        allocate(its_allocate) {
    start();
  }

  // A step whose gradients are `slope` everywhere; forward keeps what it reads.
  Task<> step(float slope) {
    driver.expect(4);
    co_await read();
    seen.push_back(allocate(arena.size()));
    driver.in_order([] {});  // on the device its memory is cleared first
    {
      const OnQueue scope(compute);
      copy(seen.back()->span(), arena.parameters());
    }
    co_await driver.begin();
    driver.follow();
    for (int bucket = 0; bucket < buckets(); ++bucket) {
      {
        const OnQueue scope(compute);
        const std::size_t count = strategy->plan().range(bucket).count;
        const auto ones = compute ? compute->allocate(count, Type::f32) : allocate_on_heap(count);
        fill(ones->span(), 1);
        axpy(arena.gradients().at(strategy->plan().range(bucket)), slope, ones->span());
      }
      driver.bucket_ready(bucket);
      co_await worker.loop().yield();  // backward goes on while the bucket leaves
    }
    co_await driver.end(4);
    driver.follow();
  }

  Task<> flush() {
    co_await driver.flush();
    driver.follow();
  }

  Queue* compute;
  Allocate allocate;
  std::vector<std::unique_ptr<Memory>> seen;  // by forward, in each step
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
    Trainee host(fabric, name, options, 0.9, nullptr), device(fabric, name, options, 0.9, &compute);
    for (int step = 0; step < kSteps; ++step) {
      const float slope = 0.1F * static_cast<float>(step + 1) + static_cast<float>(fabric.rank());
      co_await host.step(slope);
      co_await device.step(slope);
    }
    co_await host.flush();
    co_await device.flush();
    for (std::size_t step = 0; step < kSteps; ++step)
      require(std::ranges::equal(floats_of(host.seen[step]->span()),
                                 floats_of(device.seen[step]->span())),
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
  Trainee device(fabric, name, {}, 0, &compute);
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
    Trainee one(fabric, "allreduce", options, 0.9, &compute),
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
