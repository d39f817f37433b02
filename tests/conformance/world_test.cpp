// What a World promises of its sums: on forked workers, alone, and when some are lost.
#include "skein/world.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "conformance/joined.h"
#include "runtime/world_impl.h"

namespace skein {
namespace {

using test::in_both_ways;
using test::on_workers;

constexpr std::int64_t kTwo24 = std::int64_t{1} << 24, kTwo53 = std::int64_t{1} << 53;

TEST(World, SumsOfWholeNumbersAreExact) {
  for (const int size : {1, 2, 3, 5})
    in_both_ways(size, [&](World& world) {
      for (const std::int64_t count :
           {kTwo24 - 1, kTwo24 + 1, 16 * kTwo24 + 3, 50'000'021L, kTwo53 / 8 - 1}) {
        const auto each = static_cast<double>(count + world.rank());
        const auto sums = world.sum({each, 1});
        EXPECT_EQ(static_cast<std::int64_t>(sums[0]), size * count + size * (size - 1) / 2);
        EXPECT_EQ(sums[1], size);
      }
    });
}

TEST(World, SumsOf64BitIntegersAreExact) {
  constexpr std::int64_t most = std::numeric_limits<std::int64_t>::max();
  in_both_ways(3, [](World& world) {
    const std::int64_t large = most / 3 - 1;
    EXPECT_EQ(world.sum_integers({large, -large, world.rank() == 1 ? most : 0}),
              (std::vector<std::int64_t>{3 * large, -3 * large, most}));
  });
}

// The order of ranks: what a loop over them would give.
TEST(World, SumsOfFractionsAreThoseOfDoublesInTheOrderOfRanks) {
  in_both_ways(5, [](World& world) {
    double expected = 0;
    for (int rank = 0; rank < 5; ++rank) expected += 0.1 * std::pow(1e4, rank);
    EXPECT_EQ(world.sum({0.1 * std::pow(1e4, world.rank())})[0], expected);
  });
}

TEST(World, GatheredValuesKeepEveryBit) {
  in_both_ways(3, [](World& world) {
    const double own = world.rank() == 0   ? -0.0
                       : world.rank() == 1 ? std::numeric_limits<double>::quiet_NaN()
                                           : 5e-324;
    const auto rows = world.gather({own, static_cast<double>(world.rank())});
    ASSERT_EQ(rows.size(), 3u);
    EXPECT_TRUE(rows[0][0] == 0 && std::signbit(rows[0][0]));
    EXPECT_TRUE(std::isnan(rows[1][0]));
    EXPECT_EQ(rows[2][0], 5e-324);
    for (std::size_t rank = 0; rank < 3; ++rank)
      EXPECT_EQ(rows[rank][1], static_cast<double>(rank));
  });
}

// More values than fit one table.
TEST(World, SumsManyValues) {
  in_both_ways(3, [](World& world) {
    std::vector<double> values;
    for (int i = 0; i < 300'000; ++i) values.push_back(static_cast<double>(kTwo24 + i));
    const auto sums = world.sum(values);
    for (std::size_t i = 0; i < values.size(); ++i) ASSERT_EQ(sums[i], 3 * values[i]);
  });
}

TEST(World, TextsKeepTheirLengthAndEveryByte) {
  in_both_ways(3, [](World& world) {
    const auto text_of = [](int rank) {
      std::string text =
          rank == 1 ? "" : std::string(static_cast<std::size_t>(rank + 1) * 300'000, 'x');
      if (rank == 2) text[5] = '\0';
      return text;
    };
    const auto texts = world.gather_text(text_of(world.rank()));
    ASSERT_EQ(texts.size(), 3u);
    for (int rank = 0; rank < 3; ++rank)
      EXPECT_TRUE(texts[static_cast<std::size_t>(rank)] == text_of(rank)) << rank;
  });
}

TEST(World, ThoseThatAreLostAreNotCounted) {
  on_workers(4, [](World& world) {
    world.impl().tolerate_losses();
    world.barrier();
    if (world.rank() == 2) return;
    const auto sums = world.sum({static_cast<double>(kTwo24 + 1), 1});
    EXPECT_EQ(sums[0], static_cast<double>(3 * (kTwo24 + 1)));
    EXPECT_EQ(sums[1], 3);
    const auto rows = world.gather({7});
    EXPECT_TRUE(rows[2].empty());
    EXPECT_EQ(rows[3], std::vector<double>{7});
    world.barrier();
  });
}

}  // namespace
}  // namespace skein
