// The queue of data blocks on real ranks of different speed.
#include "feed/block_queue.h"

#include <gtest/gtest.h>

#include "conformance/timed.h"
#include "skein/error.h"

namespace skein::conformance {
namespace {

using namespace std::chrono_literals;

constexpr Channel kQueue = 5, kSums = 6;

// Marks the numbers that come until `limit` of them came; later ranks are slower.
Task<> take_until(BlockQueue& queue, Fabric& fabric, Span marks, int limit) {
  for (int i = 0; i < limit; ++i) {
    const std::int64_t number = co_await queue.take();
    if (number == BlockQueue::kNone) break;
    floats_of(marks)[static_cast<std::size_t>(number)] += 1;
    co_await fabric.loop().sleep_for(fabric.rank() * 200us);
  }
}

Task<> expect_once(Fabric& fabric, Span marks) {
  co_await fabric.all_reduce(kSums, marks, fabric.loop().now() + 120s);
  const auto all_marks = floats_of(marks);
  for (std::size_t i = 0; i < marks.count; ++i)
    if (all_marks[i] != 1)
      throw Error("number " + std::to_string(i) + " came " + std::to_string(all_marks[i]) +
                  " times");
}

class BlockQueues : public testing::TestWithParam<std::tuple<World, int>> {
 protected:
  std::vector<Outcome> run(const Body& body) const {
    return std::get<0>(GetParam()).run(std::get<1>(GetParam()), body);
  }
  void run_all_ok(const Body& body) const {
    expect_ok(std::get<0>(GetParam()), std::get<1>(GetParam()), body);
  }
};
class BlockQueuesOfPeers : public BlockQueues {};

TEST_P(BlockQueues, GiveEveryNumberToOneWorker) {
  run_all_ok([](Fabric& fabric) -> Task<> {
    const auto memory = fabric.allocate(300);
    BlockQueue queue(fabric, kQueue, 120s, 300, {});
    co_await take_until(queue, fabric, memory->span(), 1000);
    const std::int64_t after = co_await queue.take();
    if (after != BlockQueue::kNone) throw Error("a number came after the last");
    co_await queue.close();
    co_await expect_once(fabric, memory->span());
  });
}

// As a checkpoint does it: what a worker holds is its own again, or goes back to the queue.
TEST_P(BlockQueues, GoOnWhereTheyStood) {
  for (const bool same_workers : {true, false})
    run_all_ok([same_workers](Fabric& fabric) -> Task<> {
      const auto memory = fabric.allocate(200);
      BlockQueue::State state;
      {
        BlockQueue queue(fabric, kQueue, 120s, 200, {});
        co_await take_until(queue, fabric, memory->span(), 11 + fabric.rank());
        co_await queue.settle();
        co_await fabric.barrier(kSums, fabric.loop().now() + 120s);
        state = queue.state();
        co_await queue.close();
      }
      if (!same_workers) {
        const auto held = fabric.allocate(200);
        for (const std::int64_t number : state.held)
          floats_of(held->span())[static_cast<std::size_t>(number)] = 1;
        co_await fabric.all_reduce(kSums, held->span(), fabric.loop().now() + 120s);
        state.held.clear();
        for (std::int64_t i = 0; i < 200 && fabric.rank() == 0; ++i)
          if (floats_of(held->span())[static_cast<std::size_t>(i)] > 0) state.returned.push_back(i);
      }
      BlockQueue queue(fabric, kQueue, 120s, 200, state);
      co_await take_until(queue, fabric, memory->span(), 1000);
      co_await queue.close();
      co_await expect_once(fabric, memory->span());
    });
}

// Soon enough numbers are asked for ahead: a step is longer than all that a request takes. On a
// real host that is busy otherwise a request may take longer now and then.
TEST_P(BlockQueuesOfPeers, SoonNeverMakeAWorkerWait) {
  const auto& [world, size] = GetParam();
  const int allowed = world.name.starts_with("sim") ? 0 : 4;
  expect_ok_in_time(world, size, 20ms, [allowed](Fabric& fabric, Duration step) -> Task<> {
    BlockQueue queue(fabric, kQueue, 120s, 1000, {});
    int waited = 0;
    for (int i = 0; i < 30; ++i) {
      if (i == 20) co_await queue.settle();
      const bool there = !queue.state().held.empty();
      co_await queue.take();
      if (i > 20 && !there && ++waited > allowed)
        throw Error("nothing was there at take " + std::to_string(i));
      co_await fabric.loop().sleep_for(step);
    }
    co_await queue.close();
  });
}

TEST_P(BlockQueuesOfPeers, ADeadWorkerIsAnErrorForRank0) {
  const World& world = std::get<0>(GetParam());
  if (!world.die) GTEST_SKIP() << kAllDie;
  const auto outcomes = run([die = world.die](Fabric& fabric) -> Task<> {
    BlockQueue queue(fabric, kQueue, 120s, 1000, {});
    co_await queue.take();
    if (fabric.rank() == 1) co_await die(fabric);
    co_await queue.close();
  });
  EXPECT_TRUE(outcomes[0].io_error) << outcomes[0].error;
  EXPECT_EQ(outcomes[0].peer, 1);
}

INSTANTIATE_TEST_SUITE_P(Worlds, BlockQueues,
                         testing::Combine(testing::ValuesIn(worlds()), testing::Values(1, 2, 4)),
                         name_of);
INSTANTIATE_TEST_SUITE_P(Worlds, BlockQueuesOfPeers,
                         testing::Combine(testing::ValuesIn(worlds()), testing::Values(2, 4)),
                         name_of);

}  // namespace
}  // namespace skein::conformance
