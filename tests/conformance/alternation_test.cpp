// Operations of all kinds and sizes on one channel, on ranks that lag behind each other: what a
// fast rank does next must not reach into what a slow one still reads.
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <span>
#include <vector>

#include "conformance/harness.h"
#include "core/rng.h"
#include "skein/error.h"

namespace skein::conformance {
namespace {

using namespace std::chrono_literals;

constexpr std::size_t kCounts[] = {1, 100, 1024, 4096, 4097, 20000};

float value(int rank, std::size_t i, int round) {
  return static_cast<float>((static_cast<int>(i % 89) + 17 * rank + 5 * round) % 97);
}

float total(int size, std::size_t i, int round) {
  float sum = 0;
  for (int rank = 0; rank < size; ++rank) sum += value(rank, i, round);
  return sum;
}

// What element i must be on this rank after a round; ranks with no claim on it get no answer.
bool correct(const Fabric& fabric, int kind, std::size_t count, std::size_t i, int round,
             float got) {
  const int size = fabric.size();
  if (kind == 0) return got == total(size, i, round);
  if (kind == 1) return got == value(round % size, i, round);
  const Range mine = fabric.part(count, fabric.rank());
  const bool own = i >= mine.offset && i < mine.end();
  if (kind == 2) return !own || got == total(size, i, round);
  for (int owner = 0; owner < size; ++owner) {
    const Range part = fabric.part(count, owner);
    if (i >= part.offset && i < part.end()) return got == value(owner, i, round);
  }
  return false;
}

Task<> start(Fabric& fabric, int kind, Span buffer, int round) {
  const Deadline deadline = fabric.loop().now() + 60s;
  if (kind == 0) return fabric.all_reduce(0, buffer, deadline);
  if (kind == 1) return fabric.broadcast(0, buffer, round % fabric.size(), deadline);
  if (kind == 2) return fabric.reduce_scatter(0, buffer, deadline);
  return fabric.all_gather(0, buffer, deadline);
}

void require_correct(const Fabric& fabric, int kind, Span buffer, int round) {
  const auto result = floats_of(buffer);
  for (std::size_t i = 0; i < buffer.count; ++i)
    if (!correct(fabric, kind, buffer.count, i, round, result[i]))
      throw Error("wrong in round " + std::to_string(round) + " at " + std::to_string(i));
}

// What one round works on: kind, size and memory are the same on all ranks.
struct Work {
  Work(Fabric& fabric, Rng& same, std::span<const std::size_t> counts, int round)
      : kind(static_cast<int>(same.below(4))) {
    const std::size_t count = counts[same.below(counts.size())];
    memory = same.below(2) == 0 ? fabric.allocate(count) : allocate_on_heap(count);
    const auto values = floats_of(memory->span());
    for (std::size_t i = 0; i < count; ++i) values[i] = value(fabric.rank(), i, round);
  }
  int kind;
  std::unique_ptr<Memory> memory;
};

// One after the other.
Task<> many_rounds(Fabric& fabric) {
  Rng same(7), own(static_cast<std::uint64_t>(fabric.rank()) + 100);
  for (int round = 0; round < 300; ++round) {
    const Work work(fabric, same, kCounts, round);
    if (own.below(8) == 0) co_await fabric.loop().sleep_for(200us);
    co_await start(fabric, work.kind, work.memory->span(), round);
    require_correct(fabric, work.kind, work.memory->span(), round);
  }
}

// All started at once, large ones of many pieces among them: each begins while the one before it
// still has messages on their way.
Task<> one_burst(Fabric& fabric) {
  constexpr std::size_t kBurstCounts[] = {1, 100, 4097, 70001, 300000};
  Rng same(8);
  std::vector<Work> works;
  std::vector<Task<>> all;
  std::vector<int> ended;
  const auto run = [&](int round) -> Task<> {
    const Work& work = works[static_cast<std::size_t>(round)];
    co_await start(fabric, work.kind, work.memory->span(), round);
    require_correct(fabric, work.kind, work.memory->span(), round);
    ended.push_back(round);
  };
  for (int round = 0; round < 40; ++round) works.emplace_back(fabric, same, kBurstCounts, round);
  if (fabric.rank() % 2 == 1) co_await fabric.loop().sleep_for(2ms);
  for (int round = 0; round < 40; ++round) all.push_back(run(round));
  co_await all_of(fabric.loop(), std::move(all));
  if (!std::ranges::is_sorted(ended)) throw Error("a later operation ended before an earlier one");
}

class Alternation : public testing::TestWithParam<std::tuple<World, int>> {};

TEST_P(Alternation, ManyKindsAndSizesOnOneChannelWithRanksThatLag) {
  expect_ok(std::get<0>(GetParam()), std::get<1>(GetParam()), many_rounds);
}

TEST_P(Alternation, ManyAtOnceOnOneChannelEndInTheirOrder) {
  expect_ok(std::get<0>(GetParam()), std::get<1>(GetParam()), one_burst);
}

INSTANTIATE_TEST_SUITE_P(Fabrics, Alternation,
                         testing::Combine(testing::ValuesIn(worlds()), testing::Values(2, 3, 4)),
                         name_of);

}  // namespace
}  // namespace skein::conformance
