// Operations of all kinds and sizes one after the other on one channel, on ranks that lag behind
// each other: what a fast rank does next must not reach into what a slow one still reads.
#include <gtest/gtest.h>

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

Task<> many_rounds(Fabric& fabric) {
  Rng same(7), own(static_cast<std::uint64_t>(fabric.rank()) + 100);
  for (int round = 0; round < 300; ++round) {
    const int kind = static_cast<int>(same.below(4));
    const std::size_t count = kCounts[same.below(std::size(kCounts))];
    const auto memory = same.below(2) == 0 ? fabric.allocate(count) : allocate_on_heap(count);
    const Span buffer = memory->span();
    const auto all_buffer = floats_of(buffer);
    for (std::size_t i = 0; i < count; ++i) all_buffer[i] = value(fabric.rank(), i, round);
    if (own.below(8) == 0) co_await fabric.loop().sleep_for(200us);
    co_await start(fabric, kind, buffer, round);
    const auto result = floats_of(buffer);
    for (std::size_t i = 0; i < count; ++i)
      if (!correct(fabric, kind, count, i, round, result[i]))
        throw Error("wrong in round " + std::to_string(round) + " at " + std::to_string(i));
  }
}

class Alternation : public testing::TestWithParam<std::tuple<World, int>> {};

TEST_P(Alternation, ManyKindsAndSizesOnOneChannelWithRanksThatLag) {
  const auto& [world, size] = GetParam();
  const auto outcomes = world.run(size, many_rounds);
  for (int r = 0; r < size; ++r)
    EXPECT_TRUE(outcomes[static_cast<std::size_t>(r)].ok)
        << "rank " << r << ": " << outcomes[static_cast<std::size_t>(r)].error;
}

INSTANTIATE_TEST_SUITE_P(Fabrics, Alternation,
                         testing::Combine(testing::ValuesIn(worlds()), testing::Values(2, 3, 4)),
                         name_of);

}  // namespace
}  // namespace skein::conformance
