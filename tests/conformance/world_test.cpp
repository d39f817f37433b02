// What a World promises of its sums: on forked workers, alone, and when some are lost.
#include "skein/world.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmath>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "runtime/world_impl.h"

namespace skein {
namespace {

constexpr std::int64_t kTwo24 = std::int64_t{1} << 24, kTwo53 = std::int64_t{1} << 53;

// Runs `body` as every rank of a run of `size` processes; each must return without a failure.
void on_workers(int size, const std::function<void(World&)>& body) {
  static int runs = 0;
  const std::string run_id =
      "world-test-" + std::to_string(::getpid()) + "-" + std::to_string(runs++);
  std::vector<pid_t> children;
  for (int rank = 0; rank < size; ++rank) {
    const pid_t child = ::fork();
    if (child == 0) {
      ::setenv("SKEIN_RANK", std::to_string(rank).c_str(), 1);
      ::setenv("SKEIN_SIZE", std::to_string(size).c_str(), 1);
      ::setenv("SKEIN_RUN", run_id.c_str(), 1);
      int code = 1;
      try {
        World world = World::join({.patience = std::chrono::seconds(20)});
        body(world);
        code = testing::Test::HasFailure() ? 1 : 0;
      } catch (const std::exception& error) {
        std::fprintf(stderr, "rank %d: %s\n", rank, error.what());
      }
      std::fflush(nullptr);
      ::_exit(code);
    }
    children.push_back(child);
  }
  for (int rank = 0; rank < size; ++rank) {
    int status = 0;
    ::waitpid(children[static_cast<std::size_t>(rank)], &status, 0);
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << "rank " << rank;
  }
}

// With and without tolerance of losses, which sums in another way.
void in_both_ways(int size, const std::function<void(World&)>& body) {
  for (const bool tolerant : {false, true})
    on_workers(size, [&](World& world) {
      if (tolerant) world.impl().tolerate_losses();
      body(world);
      world.barrier();
    });
}

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
    const auto texts = world.impl().gather_text(text_of(world.rank()));
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
