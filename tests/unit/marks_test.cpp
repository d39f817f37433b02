#include "plan/marks.h"

#include <gtest/gtest.h>

namespace skein {
namespace {

TEST(Marks, AreMultiplesBeyondTheStart) {
  EXPECT_EQ(Marks(10, 0).next(), 10);
  EXPECT_EQ(Marks(10, 9).next(), 10);
  EXPECT_EQ(Marks(10, 10).next(), 20);
  EXPECT_FALSE(Marks(10, 10).due(19));
  EXPECT_TRUE(Marks(10, 10).due(20));
}

TEST(Marks, NoneAreNeverDue) {
  EXPECT_FALSE(Marks().due(Marks::kNone));
  EXPECT_FALSE(Marks(0, 0).due(Marks::kNone));
}

// A count of all workers may fall below the mark at which one of them came to it.
TEST(Marks, ComeOnceEvenIfTheWorkersAgreeOnLess) {
  Marks marks(100, 0);
  marks.pass(99);
  EXPECT_EQ(marks.next(), 200);
  EXPECT_FALSE(marks.due(100));
}

TEST(Marks, AreSkippedByASampleCountThatIsBeyondThem) {
  Marks marks(100, 0);
  marks.pass(570);
  EXPECT_EQ(marks.next(), 600);
}

TEST(Marks, AreNotBeyondTheEndOfTheRun) {
  Marks marks(100, 0, 250);
  marks.pass(100);
  EXPECT_TRUE(marks.due(200));
  marks.pass(230);
  EXPECT_FALSE(marks.due(300));
  EXPECT_EQ(Marks(100, 0, 99).next(), Marks::kNone);
  EXPECT_EQ(Marks(100, 0, 100).next(), 100);
}

TEST(Marks, EndWhereNumbersDo) {
  Marks marks(Marks::kNone / 2, 0);
  EXPECT_TRUE(marks.due(Marks::kNone / 2));
  marks.pass(Marks::kNone - 1);
  EXPECT_FALSE(marks.due(Marks::kNone));
  EXPECT_EQ(Marks(1, Marks::kNone - 1).next(), Marks::kNone);
}

// At any size of step and of mark, counted in whole numbers far beyond what a float can hold.
TEST(Marks, EachComesOnceInARunOfBillions) {
  constexpr std::int64_t kEvery = 1'000'007, kStep = 4'093, kEnd = 5'000'000'000;
  Marks marks(kEvery, 0);
  std::int64_t seen = 0;
  for (std::int64_t samples = 0; samples < kEnd;) {
    samples += kStep;
    for (; marks.due(samples); marks.pass(samples)) EXPECT_EQ(marks.next(), ++seen * kEvery);
  }
  EXPECT_EQ(seen, kEnd / kEvery);
}

}  // namespace
}  // namespace skein
