// Random clusters with random faults. What fails here is replayed by the command that it prints.
#include "sim/swarm.h"

#include <gtest/gtest.h>

#include <set>

namespace skein::sim {
namespace {

constexpr std::uint64_t kSeeds = 1000, kParts = 8;  // make soak runs many more

class Swarm : public testing::TestWithParam<std::uint64_t> {};

TEST_P(Swarm, KeepsItsPromises) {
  const std::uint64_t first = GetParam() * (kSeeds / kParts) + 1;
  const auto report = run_swarm(first, first + kSeeds / kParts - 1, [](std::uint64_t) {});
  EXPECT_EQ(report.hangs, 0u);
  EXPECT_GT(report.completed, 0u);
  EXPECT_GT(report.failed, 0u);
  EXPECT_EQ(report.faults.size(), all_fault_kinds().size()) << "a kind of fault never came";
  for (const auto& [seed, what] : report.broken)
    ADD_FAILURE() << what << "\n  " << draw(seed).describe()
                  << "\n  replay: build/skein simulate --swarm " << seed;
}

INSTANTIATE_TEST_SUITE_P(Seeds, Swarm, testing::Range<std::uint64_t>(0, kParts));

// A sum over survivors takes in a message of an earlier one, whose sender's memory had no contents.
TEST(SwarmSeeds, MessagesWithoutContentsAreNotRead) { EXPECT_EQ(judge(draw(27571)).broken, ""); }

// The next sum on a channel begins before the last one has ended: the line that the last one closed
// is no sign of which worker is lost.
TEST(SwarmSeeds, ALostWorkerIsNamedWhenCollectivesOverlap) {
  EXPECT_EQ(judge(draw(14404)).broken, "");
}

TEST(SwarmDraws, AreTheSameForTheSameSeedAndManifold) {
  std::set<std::string> seen;
  for (std::uint64_t seed = 1; seed <= 50; ++seed) {
    EXPECT_EQ(draw(seed).describe(), draw(seed).describe());
    seen.insert(draw(seed).describe());
  }
  EXPECT_EQ(seen.size(), 50u);
}

// The judge itself can say no.
TEST(SwarmJudge, SeesARunThatShouldHaveCompleted) {
  Draw drawn = draw(1);
  drawn.scenario.faults.clear();
  ASSERT_EQ(judge(drawn).broken, "");
  drawn.scenario.patience = std::chrono::nanoseconds(100);  // nobody can keep this deadline
  drawn.scenario.workers = 4;
  drawn.scenario.speeds.clear();
  EXPECT_NE(judge(drawn).broken, "");
}

}  // namespace
}  // namespace skein::sim
