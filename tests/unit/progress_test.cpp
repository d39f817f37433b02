// What the person who waits is shown.
#include "observe/progress.h"

#include <gtest/gtest.h>

#include <memory>

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

TEST_F(ProgressLines, QuietIsQuiet) {
  ProgressBar bar(clock, file.get(), true, 1);
  bar.update({.samples = 10, .total = 20, .steps = 1});
  bar.say("hello");
  bar.finish({.samples = 20, .total = 20, .steps = 2});
  EXPECT_EQ(written(), "");
}

}  // namespace
}  // namespace skein
