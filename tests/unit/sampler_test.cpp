#include "plan/sampler.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "plan/shares.h"
#include "skein/error.h"

namespace skein {
namespace {

using Indices = std::vector<std::uint32_t>;
using Position = GlobalBatches::Position;

Indices copy(std::span<const std::uint32_t> batch) { return {batch.begin(), batch.end()}; }

Indices epoch_of(GlobalBatches& batches, std::int64_t epoch) {
  Indices all;
  while (batches.position().epoch == epoch) {
    const auto batch = batches.next();
    all.insert(all.end(), batch.begin(), batch.end());
  }
  return all;
}

// The samples that all workers compute in a step, put together, are the global batch; over an
// epoch each sample comes once; and neither depends on how many workers there are.
void check_epochs(std::uint32_t size, std::int64_t global_batch, int workers) {
  GlobalBatches alone(size, global_batch, 7);
  std::vector<GlobalBatches> each(static_cast<std::size_t>(workers),
                                  GlobalBatches(size, global_batch, 7));
  for (std::int64_t epoch = 0; epoch < 3; ++epoch) {
    Indices seen;
    while (alone.position().epoch == epoch) {
      const Indices expected = copy(alone.next());
      Indices together;
      for (int rank = 0; rank < workers; ++rank) {
        const auto batch = each[static_cast<std::size_t>(rank)].next();
        const Share share = share_of(even_shares(std::ssize(batch), workers), rank);
        const auto part = batch.subspan(static_cast<std::size_t>(share.begin),
                                        static_cast<std::size_t>(share.count));
        together.insert(together.end(), part.begin(), part.end());
      }
      ASSERT_EQ(together, expected);
      ASSERT_TRUE(expected.size() == static_cast<std::size_t>(global_batch) ||
                  alone.position() == Position(epoch + 1, 0));
      seen.insert(seen.end(), expected.begin(), expected.end());
    }
    std::ranges::sort(seen);
    Indices all(size);
    std::iota(all.begin(), all.end(), 0u);
    ASSERT_EQ(seen, all) << "epoch " << epoch;
  }
}

TEST(GlobalBatches, EverySampleOnceWhateverTheWorkers) {
  for (const std::uint32_t size : {1u, 2u, 7u, 64u, 1000u})
    for (const std::int64_t global_batch : {1, 3, 64, 2000})
      for (const int workers : {1, 2, 3, 4, 8}) {
        SCOPED_TRACE(fmt::format("{} samples, batch {}, {} workers", size, global_batch, workers));
        check_epochs(size, global_batch, workers);
      }
}

TEST(GlobalBatches, TheOrderDependsOnSeedAndEpochAlone) {
  GlobalBatches small(1000, 10, 1), large(1000, 300, 1), other(1000, 10, 2);
  const Indices first = epoch_of(small, 0);
  EXPECT_EQ(epoch_of(large, 0), first);
  EXPECT_NE(epoch_of(other, 0), first);
  EXPECT_NE(epoch_of(small, 1), first);
  EXPECT_FALSE(std::ranges::is_sorted(first));
}

TEST(GlobalBatches, SeekContinuesAsIfNeverInterrupted) {
  GlobalBatches whole(101, 8, 3);
  std::vector<Position> positions;
  std::vector<Indices> batches;
  for (int i = 0; i < 40; ++i) {
    positions.push_back(whole.position());
    batches.push_back(copy(whole.next()));
  }
  for (std::size_t i = 0; i < positions.size(); ++i) {
    GlobalBatches resumed(101, 8, 3);
    resumed.seek(positions[i]);
    for (std::size_t k = i; k < positions.size(); ++k) {
      ASSERT_EQ(resumed.position(), positions[k]);
      ASSERT_EQ(copy(resumed.next()), batches[k]);
    }
  }
}

TEST(GlobalBatches, ALimitCutsABatchAndTheRestFollows) {
  GlobalBatches cut(20, 8, 5), whole(20, 20, 5);
  Indices pieces;
  for (const std::int64_t limit : {3, 100, 8, 1}) {
    const auto batch = cut.next(limit);
    pieces.insert(pieces.end(), batch.begin(), batch.end());
  }
  EXPECT_EQ(pieces, copy(whole.next()));
  EXPECT_EQ(cut.position(), Position(1, 0));
}

TEST(GlobalBatches, ASpanOutlivesTheEndOfItsEpoch) {
  GlobalBatches batches(6, 4, 1);
  const Indices first = copy(batches.next());
  const auto last = batches.next();
  EXPECT_EQ(batches.position(), Position(1, 0));
  Indices all = first;
  all.insert(all.end(), last.begin(), last.end());
  std::ranges::sort(all);
  EXPECT_EQ(all, (Indices{0, 1, 2, 3, 4, 5}));
}

TEST(GlobalBatches, RefusesThePositionOfAnotherDataSet) {
  GlobalBatches batches(10, 4, 1);
  EXPECT_THROW(batches.seek({0, 10}), ConfigError);
  EXPECT_THROW(batches.seek({-1, 0}), ConfigError);
  EXPECT_THROW(batches.seek({0, -1}), ConfigError);
  EXPECT_NO_THROW(batches.seek({5, 9}));
}

// However budget, batch and data set divide each other: whole epochs hold every sample once, and
// all samples together are the budget.
TEST(NumberedBatches, HoldEverySampleOnceAnEpochUpToTheBudget) {
  for (const std::int64_t batch : {1, 7, 16, 50})
    for (const std::int64_t budget : {1, 30, 50, 100, 131}) {
      const NumberedBatches numbered(50, batch, budget);
      GlobalBatches batches(50, batch, 3), straight(50, batch, 3);
      std::vector<std::vector<int>> visits(3, std::vector<int>(50));
      std::int64_t all = 0;
      for (std::int64_t number = 0; number < numbered.count(); ++number) {
        const auto position = numbered.position(number);
        batches.seek(position);
        EXPECT_EQ(straight.position(), position);
        straight.next();
        for (const std::uint32_t index : batches.next(numbered.samples(number))) {
          ++visits[static_cast<std::size_t>(position.epoch)][index];
          ++all;
        }
      }
      EXPECT_EQ(all, budget);
      for (std::int64_t epoch = 0; epoch < budget / 50; ++epoch)
        EXPECT_EQ(visits[static_cast<std::size_t>(epoch)], std::vector<int>(50, 1));
    }
}

}  // namespace
}  // namespace skein
