#include "optimize/schedule.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>

#include "optimize/clip.h"
#include "skein/error.h"

namespace skein {
namespace {

LearningRate rate(const char* text, double base = 0.4, std::int64_t total = 1000) {
  return {base, parse_schedule(text), total};
}

TEST(Schedule, ConstantStays) {
  for (const std::int64_t samples : {0, 1, 1'000'000}) EXPECT_EQ(rate("constant").at(samples), 0.4);
}

TEST(Schedule, WarmUpIsLinearFromZeroAndEndsAtTheBase) {
  for (const char* text :
       {"constant:warmup=100", "cosine:warmup=100", "step:every=500,warmup=100"}) {
    EXPECT_EQ(rate(text).at(0), 0) << text;
    EXPECT_DOUBLE_EQ(rate(text).at(25), 0.1) << text;
    EXPECT_DOUBLE_EQ(rate(text).at(99), 0.396) << text;
    EXPECT_DOUBLE_EQ(rate(text).at(100), 0.4) << text;
  }
  EXPECT_EQ(rate("constant:warmup=0").at(0), 0.4);
}

TEST(Schedule, CosineFallsToItsFloorAndStaysThere) {
  EXPECT_DOUBLE_EQ(rate("cosine").at(0), 0.4);
  EXPECT_DOUBLE_EQ(rate("cosine").at(250), 0.2 * (1 + std::sqrt(0.5)));
  EXPECT_DOUBLE_EQ(rate("cosine").at(500), 0.2);
  EXPECT_EQ(rate("cosine").at(1000), 0);
  EXPECT_EQ(rate("cosine").at(5000), 0);
  EXPECT_DOUBLE_EQ(rate("cosine:floor=0.1").at(500), 0.25);
  EXPECT_DOUBLE_EQ(rate("cosine:floor=0.1").at(1000), 0.1);
  EXPECT_DOUBLE_EQ(rate("cosine:floor=0.1").at(1001), 0.1);
  // The fall begins where warm-up ends: its middle is at 600 of 200 … 1000.
  EXPECT_DOUBLE_EQ(rate("cosine:floor=0.1,warmup=200").at(600), 0.25);
}

TEST(Schedule, StepMultipliesEverySoManySamplesFromTheStart) {
  const LearningRate halving = rate("step:every=100,factor=0.5");
  EXPECT_EQ(halving.at(0), 0.4);
  EXPECT_EQ(halving.at(99), 0.4);
  EXPECT_EQ(halving.at(100), 0.2);
  EXPECT_EQ(halving.at(199), 0.2);
  EXPECT_EQ(halving.at(300), 0.05);
  EXPECT_DOUBLE_EQ(rate("step:every=100").at(250), 0.004);
  EXPECT_EQ(rate("step:every=100,factor=0.5,warmup=150").at(150), 0.2);
}

TEST(Schedule, CosineWantsTheLengthOfTheTraining) {
  const auto why = [](const char* text, std::int64_t total) -> std::string {
    try {
      rate(text, 0.4, total);
    } catch (const ConfigError& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_NE(why("cosine", 0).find("samples, which are not given"), std::string::npos);
  EXPECT_EQ(why("cosine", 0).find("warms up"), std::string::npos);
  EXPECT_NE(why("cosine:warmup=50", 50).find("warms up over 50"), std::string::npos);
}

// The message of the ConfigError that `text` causes.
std::string error_of(const std::string& text) {
  try {
    parse_schedule(text);
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "no error";
}

TEST(Schedule, ErrorsNameKeyValueAndWhatIsAllowed) {
  EXPECT_EQ(error_of("cosine:flor=1"),
            "schedule 'cosine:flor=1': unknown key 'flor': expected floor, warmup");
  EXPECT_EQ(
      error_of("constant:warmup=ten"),
      "schedule 'constant:warmup=ten': warmup is 'ten': expected a whole number of samples, 0 "
      "or more");
  EXPECT_EQ(error_of("step"),
            "schedule 'step': every is missing: expected the samples between two steps, as in "
            "step:every=50000");
  EXPECT_EQ(error_of("cosine:warmup=1,warmup=2"),
            "schedule 'cosine:warmup=1,warmup=2': warmup is given twice: expected once");
  EXPECT_NE(error_of("linear").find("expected constant, cosine or step"), std::string::npos);
}

TEST(Schedule, RefusesWhatItDoesNotUnderstand) {
  for (const char* bad : {"",
                          "Cosine",
                          "cosine:",
                          "cosine:floor",
                          "cosine:floor=",
                          "cosine:floor=-1",
                          "cosine:floor=nan",
                          "cosine:floor=inf",
                          "cosine:floor=0.1,",
                          "cosine:,floor=0.1",
                          "cosine,warmup=5",
                          "cosine:every=5",
                          "constant:floor=0.1",
                          "constant:warmup=-1",
                          "constant:warmup=1.5",
                          "constant:warmup=5 ",
                          "constant:warmup=99999999999999999999",
                          "step:factor=0.1",
                          "step:every=0",
                          "step:every=5,factor=0",
                          "step:every=5,factor=x"})
    EXPECT_THROW(parse_schedule(bad), ConfigError) << bad;
}

TEST(LearningRate, RefusesWhatDoesNotFitTogether) {
  EXPECT_THROW(rate("constant", -0.1), ConfigError);
  EXPECT_THROW(rate("constant", std::numeric_limits<double>::quiet_NaN()), ConfigError);
  EXPECT_THROW(rate("cosine:floor=0.5", 0.4), ConfigError);
  EXPECT_THROW(rate("cosine:warmup=1000"), ConfigError);
  EXPECT_THROW(rate("cosine", 0.4, 0), ConfigError);
  EXPECT_THROW(LearningRate(0.1, {.kind = Schedule::Kind::step}), ConfigError);
  EXPECT_NO_THROW(rate("constant", 0.4, 0));
  EXPECT_NO_THROW(rate("step:every=10,warmup=2000", 0.4, 0));
}

TEST(LearningRateDeathTest, SamplesAreNeverNegative) {
  EXPECT_DEATH(rate("constant").at(-1), "after -1 samples");
}

TEST(Clip, ScalesOnlyWhatIsTooLong) {
  EXPECT_EQ(clip_scale(0, 1), 1.0F);
  EXPECT_EQ(clip_scale(0.25, 1), 1.0F);
  EXPECT_FLOAT_EQ(clip_scale(100, 1), static_cast<float>(1 / (10 + 1e-6)));
  EXPECT_LT(clip_scale(1, 1), 1.0F);  // torch's 1e-6
  EXPECT_EQ(clip_scale(std::numeric_limits<double>::infinity(), 1), 0.0F);
  EXPECT_TRUE(std::isnan(clip_scale(std::numeric_limits<double>::quiet_NaN(), 1)));
}

}  // namespace
}  // namespace skein
