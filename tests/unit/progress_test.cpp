// What the person who waits is shown.
#include "skein/progress.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>

#include "core/clock.h"
#include "skein/error.h"
#include "skein/metrics_file.h"

namespace skein {
namespace {

class ProgressLines : public ::testing::Test {
 protected:
  std::string written() {
    std::fflush(file.get());
    std::string text(static_cast<std::size_t>(std::ftell(file.get())), ' ');
    std::rewind(file.get());
    const std::size_t got = std::fread(text.data(), 1, text.size(), file.get());
    text.resize(got);
    return text;
  }

  ManualClock clock;
  std::unique_ptr<std::FILE, int (*)(std::FILE*)> file{std::tmpfile(), std::fclose};
};

// Workers at their own pace end beyond what was asked for.
TEST_F(ProgressLines, NeverShowMoreThanAll) {
  ProgressBar bar(clock, file.get(), false, 1);
  for (const std::int64_t samples : {10, 20, 125}) {
    clock.advance_to(clock.now() + std::chrono::seconds(1));
    bar.update({.samples = samples, .total = 120, .steps = samples / 10});
  }
  const std::string text = written();
  EXPECT_NE(text.find("100.0 %  125/120 samples"), std::string::npos) << text;
  EXPECT_EQ(text.find("104"), std::string::npos) << text;
}

TEST_F(ProgressLines, EndWithTheLastAccuracy) {
  ProgressBar bar(clock, file.get(), false, 0);
  bar.update({.samples = 10, .total = 20, .steps = 1, .accuracy = -1});
  clock.advance_to(clock.now() + std::chrono::seconds(1));
  bar.update({.samples = 20, .total = 20, .steps = 2, .accuracy = 0.25});
  bar.finish({.samples = 20, .total = 20, .steps = 2, .accuracy = 0.75});
  const std::string text = written();
  EXPECT_EQ(text.find("25.00 %"), std::string::npos) << "one evaluation old: " << text;
  EXPECT_NE(text.find("20/20 samples  step 2  10 samples/s"), std::string::npos) << text;
  EXPECT_NE(text.find("accuracy 75.00 %"), std::string::npos) << text;
}

TEST_F(ProgressLines, FollowRecords) {
  ProgressBar bar(100, true, file.get());
  Record record;
  for (const std::int64_t step : {1, 2}) {
    record.step = step;
    record.samples = 50 * step;
    record.learning_rate = 0.5;
    if (step == 2) record.loss = 1.25;
    bar.update(record);
  }
  bar.finish();
  const std::string text = written();
  EXPECT_NE(text.find("100.0 %  100/100 samples  step 2"), std::string::npos) << text;
  EXPECT_NE(text.find("loss 1.2500  lr 0.5"), std::string::npos) << text;
}

TEST(Metrics, AreLinesOfWhatIsKnown) {
  const std::string path = "/tmp/skein-metrics-" + std::to_string(::getpid()) + ".jsonl";
  {
    MetricsWriter metrics(path);
    Record record{.step = 3, .samples = 96, .seconds = 1.5, .loss = 0.25};
    record.more["gradient_norm"] = 2;
    record.more["nothing"] = Record::kUnknown;
    metrics.write(record);
    metrics.write_json(R"({"kind": "evaluation", "accuracy": 0.5})");
    EXPECT_THROW(metrics.write_json("3"), ConfigError);
    EXPECT_THROW(metrics.write_json("{"), ConfigError);
    EXPECT_THROW(MetricsWriter("/nowhere/metrics.jsonl"), Error);
  }
  std::ifstream in(path);
  std::string first, second, third;
  std::getline(in, first);
  std::getline(in, second);
  EXPECT_EQ(nlohmann::json::parse(first),
            nlohmann::json::parse(R"({"kind": "step", "step": 3, "samples": 96, "seconds": 1.5,
                                      "loss": 0.25, "gradient_norm": 2.0})"));
  EXPECT_EQ(nlohmann::json::parse(second)["accuracy"], 0.5);
  EXPECT_FALSE(std::getline(in, third));
  std::remove(path.c_str());
}

TEST_F(ProgressLines, QuietIsQuiet) {
  ProgressBar bar(clock, file.get(), true, 1);
  bar.update({.samples = 10, .total = 20, .steps = 1});
  bar.say("hello");
  bar.finish({.samples = 20, .total = 20, .steps = 2});
  EXPECT_EQ(written(), "");
}

}  // namespace
}  // namespace skein
