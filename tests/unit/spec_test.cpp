#include "core/spec.h"

#include <gtest/gtest.h>

#include <functional>

#include "skein/error.h"

namespace skein {
namespace {

using namespace std::chrono_literals;

using Pieces = std::vector<std::string>;

TEST(SplitText, GivesWhatLiesBetweenSeparators) {
  EXPECT_EQ(split_text("a,b,c", ','), (Pieces{"a", "b", "c"}));
  EXPECT_EQ(split_text("a", ','), (Pieces{"a"}));
  EXPECT_EQ(split_text(",a,,b,", ','), (Pieces{"", "a", "", "b", ""}));
  EXPECT_EQ(split_text("", ','), Pieces{});
}

TEST(SpecTest, KeysAreReadByTheirType) {
  Spec spec("--thing", "name:text=abc,number=2.5,integer=-3,duration=40ms,bandwidth=1gbit");
  EXPECT_EQ(spec.name(), "name");
  EXPECT_EQ(spec.text("text", ""), "abc");
  EXPECT_EQ(spec.number("number", 0, 0, 10), 2.5);
  EXPECT_EQ(spec.integer("integer", 0, -5, 5), -3);
  EXPECT_EQ(spec.duration("duration", 0s), 40ms);
  EXPECT_EQ(spec.bandwidth("bandwidth", 0), 125e6);
  EXPECT_NO_THROW(spec.finish());
}

TEST(SpecTest, WhatIsNotGivenIsTheFallback) {
  for (const char* text : {"name", "name:"}) {
    Spec spec("--thing", text);
    EXPECT_EQ(spec.name(), "name");
    EXPECT_FALSE(spec.has("key"));
    EXPECT_EQ(spec.text("key", "x"), "x");
    EXPECT_EQ(spec.number("key", 7, 0, 1), 7);  // a fallback need not lie inside the limits
    EXPECT_EQ(spec.integer("key", 7, 0, 1), 7);
    EXPECT_EQ(spec.duration("key", 3s), 3s);
    EXPECT_EQ(spec.bandwidth("key", 5), 5);
    EXPECT_NO_THROW(spec.finish());
  }
}

TEST(SpecTest, AValueMayHoldColonsAndEqualSigns) {
  Spec spec("--thing", "name:path=a:b=c");
  EXPECT_EQ(spec.text("path", ""), "a:b=c");
}

struct Misuse {
  const char* text;
  std::function<void(Spec&)> use;
  const char* expected;
};

// All errors begin with the option and the whole text.
TEST(SpecTest, ErrorsSayWhatWhereAndWhatWasExpected) {
  const auto nothing = [](Spec&) {};
  const auto number = [](Spec& spec) { spec.number("k", 0, 1, 2.5); };
  const auto integer = [](Spec& spec) { spec.integer("k", 0, 1, 9); };
  const auto duration = [](Spec& spec) { spec.duration("k", 0s); };
  const std::vector<Misuse> misuses{
      {"", nothing, "expected NAME:KEY=VALUE"},
      {":k=1", nothing, "expected NAME:KEY=VALUE"},
      {"n:k", nothing, "'k': expected KEY=VALUE"},
      {"n:k=", nothing, "'k=': expected KEY=VALUE"},
      {"n:=1", nothing, "'=1': expected KEY=VALUE"},
      {"n:k=1,", nothing, "'': expected KEY=VALUE"},
      {"n:k=1,k=2", nothing, "k is given twice"},
      {"n:k=3", number, "k=3: expected a number from 1 to 2.5"},
      {"n:k=0.5", number, "k=0.5: expected a number from 1"},
      {"n:k=nan", number, "k=nan: expected a number"},
      {"n:k=2x", number, "k=2x: expected a number"},
      {"n:k=10", integer, "k=10: expected a whole number from 1 to 9"},
      {"n:k=1.5", integer, "k=1.5: expected a whole number"},
      {"n:k=99999999999999999999", integer, "expected a whole number"},
      {"n:k=5", duration, "k: '5' is not a duration"},
      {"n:k=5", [](Spec& spec) { spec.bandwidth("k", 0); }, "k: '5' is not a bandwidth"},
      {"n:k=5", [](Spec& spec) { spec.require("other"); }, "other is missing"},
      {"n:k=5", [](Spec& spec) { spec.fail("no good"); }, "no good"},
  };
  for (const Misuse& misuse : misuses) {
    try {
      Spec spec("--thing", misuse.text);
      misuse.use(spec);
      ADD_FAILURE() << "'" << misuse.text << "' was accepted";
    } catch (const ConfigError& error) {
      const std::string text = error.what();
      EXPECT_EQ(text.find(std::string("--thing ") + misuse.text + ": "), 0u) << text;
      EXPECT_NE(text.find(misuse.expected), std::string::npos) << text;
    }
  }
}

TEST(SpecTest, FinishRefusesWhatNobodyAskedForAndListsWhatIsKnown) {
  Spec spec("--thing", "n:a=1,b=2,c=3");
  spec.text("a", "");
  spec.text("c", "");
  try {
    spec.finish();
    FAIL();
  } catch (const ConfigError& error) {
    EXPECT_STREQ(error.what(), "--thing n:a=1,b=2,c=3: unknown key 'b': expected a, c");
  }
  spec.text("b", "");
  EXPECT_NO_THROW(spec.finish());
}

}  // namespace
}  // namespace skein
