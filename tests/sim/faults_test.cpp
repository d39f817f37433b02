// Faults as people write them, and as they are drawn.
#include "sim/faults.h"

#include <gtest/gtest.h>

#include "skein/error.h"

namespace skein::sim {
namespace {

using namespace std::chrono_literals;
using Kind = Fault::Kind;

Fault only(const std::string& text, int workers = 8) {
  const auto faults = parse_faults(text, workers, 1);
  EXPECT_EQ(faults.size(), 1u) << text;
  return faults.at(0);
}

std::string error_of(const std::string& text) {
  try {
    parse_faults(text, 8, 1);
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "(none)";
}

TEST(ParseFaults, EveryKindHasItsKeys) {
  EXPECT_EQ(only("crash:rank=3,at=2s").kind, Kind::crash);
  EXPECT_EQ(only("crash:rank=3,at=2s").ranks, (std::set<int>{3}));
  EXPECT_EQ(only("crash:rank=3,at=2s").at, 2s);
  EXPECT_EQ(only("vanish:rank=0,at=1ms").kind, Kind::vanish);
  const Fault restart = only("restart:rank=3,at=2s,after=5s");
  EXPECT_EQ(restart.kind, Kind::restart);
  EXPECT_EQ(restart.lasting, 5s);
  EXPECT_EQ(only("restart:rank=3,at=2s").lasting, 1s);
  const Fault pause = only("pause:rank=1,at=1s,for=500ms");
  EXPECT_EQ(pause.kind, Kind::pause);
  EXPECT_EQ(pause.lasting, 500ms);
  EXPECT_EQ(only("pause:rank=1,at=1s").lasting, 0s);
  EXPECT_EQ(only("partition:ranks=0-3,at=1s,for=2s").kind, Kind::partition);
  const Fault delay = only("delay:ranks=2,at=1s,for=1s,extra=200ms");
  EXPECT_EQ(delay.kind, Kind::delay);
  EXPECT_EQ(delay.extra, 200ms);
  const Fault slow = only("slow:rank=1,at=1s,for=5s,factor=2.5");
  EXPECT_EQ(slow.kind, Kind::slow);
  EXPECT_EQ(slow.factor, 2.5);
  EXPECT_EQ(only("slow:rank=1,at=1s").factor, 10);
}

TEST(ParseFaults, RanksAreRangesJoinedByPlus) {
  EXPECT_EQ(only("partition:ranks=0-2+7,at=1s").ranks, (std::set<int>{0, 1, 2, 7}));
  EXPECT_EQ(only("slow:ranks=5+1+5,at=1s").ranks, (std::set<int>{1, 5}));
  EXPECT_EQ(only("partition:rank=4-4,at=1s").ranks, (std::set<int>{4}));
}

TEST(ParseFaults, SeveralAreSeparatedBySemicolonsAndSpaceIsAllowed) {
  const auto faults = parse_faults(" crash:rank=1,at=1s ;; \n pause:rank=2,at=2s,for=1s;", 8, 1);
  ASSERT_EQ(faults.size(), 2u);
  EXPECT_EQ(faults[0].kind, Kind::crash);
  EXPECT_EQ(faults[1].kind, Kind::pause);
  EXPECT_TRUE(parse_faults("", 8, 1).empty());
}

struct BadFault {
  const char *text, *expected;
};

class ParseFaultsError : public testing::TestWithParam<BadFault> {};
INSTANTIATE_TEST_SUITE_P(
    Texts, ParseFaultsError,
    testing::Values(
        BadFault{"flood:rank=1,at=1s",
                 "'flood': expected crash, vanish, restart, pause, partition, delay, slow, or"},
        BadFault{"crash:at=1s", "rank is missing"}, BadFault{"crash:rank=1", "at is missing"},
        BadFault{"crash:ranks=1,at=1s", "rank is missing"},
        BadFault{"crash:rank=0-1,at=1s", "expected one rank"},
        BadFault{"crash:rank=8,at=1s", "rank '8': expected 0 to 7"},
        BadFault{"crash:rank=-1,at=1s", "expected 0 to 7"},
        BadFault{"partition:ranks=0-,at=1s", "rank ''"},
        BadFault{"partition:ranks=1++2,at=1s", "rank ''"},
        BadFault{"partition:ranks=3-1,at=1s", "expected at least one rank"},
        BadFault{"partition:at=1s", "ranks is missing"},
        BadFault{"crash:rank=1,at=1s,for=1s", "unknown key 'for'"},
        BadFault{"pause:rank=1,at=soon", "at: 'soon' is not a duration"},
        BadFault{"delay:ranks=1,at=1s", "extra is missing"},
        BadFault{"slow:rank=1,at=1s,factor=0", "expected a number from 0.001"},
        BadFault{"random:count=2", "within is missing"},
        BadFault{"random:count=0,within=1s", "whole number from 1 to 1000"},
        BadFault{"random:within=0s", "expected a time above 0"},
        BadFault{"random:within=1s,kinds=flood", "'flood': expected crash"}));

TEST_P(ParseFaultsError, NamesTheFaultAndWhatWasExpected) {
  const std::string error = error_of(std::string("slow:rank=0,at=1s;") + GetParam().text);
  EXPECT_EQ(error.find(std::string("--faults ") + GetParam().text + ":"), 0u) << error;
  EXPECT_NE(error.find(GetParam().expected), std::string::npos) << error;
}

TEST(DescribeFaults, GivesTheTextThatParsesToTheSame) {
  for (const char* text :
       {"crash:rank=3,at=2000000us", "vanish:rank=0,at=0us", "restart:rank=1,at=5us,after=7us",
        "pause:rank=1,at=1us,for=2us", "pause:rank=1,at=1us",
        "partition:ranks=0+1+5,at=1us,for=9us", "delay:rank=2,at=1us,for=3us,extra=1500ns",
        "slow:ranks=2+3,at=1us,for=3us,factor=2.5"})
    EXPECT_EQ(describe(only(text)), text);
  const std::string two = "crash:rank=1,at=1us; crash:rank=2,at=2us";
  EXPECT_EQ(describe(parse_faults(two, 8, 1)), two);
}

TEST(DescribeFaults, RandomOnesSurviveTheRoundTrip) {
  const auto drawn = parse_faults("random:count=200,within=10s", 8, 7);
  const auto again = parse_faults(describe(drawn), 8, 1);
  ASSERT_EQ(again.size(), 200u);
  EXPECT_EQ(describe(again), describe(drawn));
  for (std::size_t i = 0; i < drawn.size(); ++i) {
    EXPECT_EQ(again[i].at, drawn[i].at);
    EXPECT_EQ(again[i].ranks, drawn[i].ranks);
    EXPECT_EQ(again[i].extra, drawn[i].extra);
  }
}

TEST(DrawFaults, AreFixedByTheSeedAndLieInsideTheirLimits) {
  const std::string text = "random:count=300,within=10s";
  const auto faults = parse_faults(text, 8, 7);
  EXPECT_EQ(describe(faults), describe(parse_faults(text, 8, 7)));
  EXPECT_NE(describe(faults), describe(parse_faults(text, 8, 8)));
  std::set<Kind> seen;
  for (const Fault& fault : faults) {
    seen.insert(fault.kind);
    EXPECT_FALSE(fault.ranks.empty());
    EXPECT_LE(fault.ranks.size(), 4u);
    EXPECT_GE(*fault.ranks.begin(), 0);
    EXPECT_LT(*fault.ranks.rbegin(), 8);
    EXPECT_GE(fault.at, 0s);
    EXPECT_LT(fault.at, 10s);
    EXPECT_GT(fault.lasting, 0s);
    EXPECT_LE(fault.lasting, 5s);
  }
  EXPECT_EQ(seen.size(), all_fault_kinds().size());
}

TEST(DrawFaults, AreOfTheKindsThatWereAskedFor) {
  for (const Fault& fault : parse_faults("random:count=50,within=10s,kinds=pause+slow", 8, 1))
    EXPECT_TRUE(fault.kind == Kind::pause || fault.kind == Kind::slow);
}

}  // namespace
}  // namespace skein::sim
