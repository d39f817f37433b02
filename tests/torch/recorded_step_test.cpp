// Samples that a device holds, and steps that are recorded, as far as the host can show it.
#include "train/simulate/recorded_step.h"

#include <gtest/gtest.h>

#include "data/open.h"

namespace skein {
namespace {

using Numbers = std::vector<std::uint32_t>;

class HeldSamples : public testing::Test {
 protected:
  static TrainOptions on_host() {
    TrainOptions options;
    options.device = "cpu";
    return options;
  }

  TrainOptions options_ = on_host();
  Compute compute_{options_, 0};
  DataSets data_ = open_data("glyphs", {{"train", "300"}, {"test", "20"}}, 3);
};

bool same(const Batch& a, const Batch& b) {
  return a.data.equal(b.data) && a.target.equal(b.target);
}

TEST_F(HeldSamples, AreThoseOfTheDataSet) {
  const Samples read(*data_.train, compute_), held(*data_.train, compute_, 1 << 30);
  EXPECT_FALSE(read.held());
  ASSERT_TRUE(held.held());
  EXPECT_EQ(held.size(), 300);
  for (const Numbers& numbers : {Numbers{0}, {299, 0, 7, 7}, {251, 249, 250}}) {
    EXPECT_TRUE(same(held.get(numbers), data_.train->get(numbers)));
    EXPECT_TRUE(same(read.get(numbers), data_.train->get(numbers)));
  }
}

TEST_F(HeldSamples, AreNotHeldWhereThatIsTooMuch) {
  const Batch one = data_.train->get(Numbers{0});
  const std::int64_t all = 300 * (one.data.numel() * 4 + one.target.numel() * 8);
  EXPECT_FALSE(Samples(*data_.train, compute_, all - 1).held());
  EXPECT_TRUE(Samples(*data_.train, compute_, all).held());
}

// Does what was recorded, with whatever lies where it reads.
struct Tape final : TorchGraphs::Graph {
  Tape(std::function<void()> its_work, int& its_plays)
      : work(std::move(its_work)), plays(its_plays) {}
  void play() override {
    ++plays;
    work();
  }
  std::function<void()> work;
  int& plays;
};

TEST_F(HeldSamples, MakeStepsOfTheRightSamplesRecordedOrNot) {
  const Samples samples(*data_.train, compute_, 1 << 30);
  int recorded = 0, played = 0;
  std::vector<Batch> seen;
  RecordedStep step(
      [&](const std::function<void()>& work) {
        ++recorded;
        return std::make_unique<Tape>(work, played);
      },
      samples, [&](const Batch& batch) { seen.push_back(batch); });
  std::vector<Numbers> asked;
  for (std::uint32_t i = 0; i < 10; ++i) {
    asked.push_back({i, 2 * i, 100 + i});
    if (i == 7) asked.back() = {9};  // the last of a run, say
    Numbers passing = asked.back();
    step.run(passing);
    passing.assign(passing.size(), 0);
  }
  ASSERT_EQ(seen.size(), asked.size());
  for (std::size_t i = 0; i < asked.size(); ++i)
    EXPECT_TRUE(same(seen[i], data_.train->get(asked[i]))) << i;
  EXPECT_EQ(recorded, 1);
  EXPECT_EQ(played, 6);
}

}  // namespace
}  // namespace skein
