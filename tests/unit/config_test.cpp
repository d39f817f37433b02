#include "cli/config.h"

#include <gtest/gtest.h>

#include "cli/suggest.h"
#include "skein/error.h"

namespace skein {
namespace {

std::string refusal(const std::string& text) {
  try {
    parse_config(text, "job.toml");
    return "accepted";
  } catch (const ConfigError& error) {
    return error.what();
  }
}

TEST(Config, KeysAreOptionsAndTablesAreSettings) {
  const auto entries = parse_config(
      "workers = 4\n"
      "lr = 0.1\n"
      "nesterov = true\n"
      "data = \"mnist:/data\"\n"
      "emulate-speeds = [1, 1.5, 2]\n"
      "[strategy]\n"
      "balance = true\n"
      "[model]\n"
      "width = 64\n",
      "job.toml");
  const std::vector<ConfigEntry> expected{{"workers", "4", false, 1},
                                          {"lr", "0.1", false, 2},
                                          {"nesterov", "true", true, 3},
                                          {"data", "mnist:/data", false, 4},
                                          {"emulate-speeds", "1,1.5,2", false, 5},
                                          {"set", "strategy.balance=true", false, 7},
                                          {"set", "model.width=64", false, 9}};
  EXPECT_EQ(entries, expected);
}

TEST(Config, KeepsTheFilesOrder) {
  const auto entries = parse_config("seed = 1\nbatch = 2\nlr = 3\n", "job.toml");
  ASSERT_EQ(entries.size(), 3u);
  EXPECT_EQ(entries[0].key, "seed");
  EXPECT_EQ(entries[2].key, "lr");
}

TEST(Config, ErrorsHaveFileAndLine) {
  EXPECT_EQ(refusal("lr = 1\n[modle]\nwidth = 3\n"),
            "job.toml:2: unknown table [modle]: expected [strategy], [model], [data]; did you mean "
            "'model'?");
  EXPECT_EQ(refusal("\nlr = 2020-01-01\n"),
            "job.toml:2: the value of 'lr' is a date or time: expected text, a number, true, false "
            "or a list of these");
  EXPECT_EQ(refusal("lr = 1\nlr = 2\n").rfind("job.toml:2: ", 0), 0u);
  EXPECT_EQ(refusal("a = 1\nlr = = 2\n").rfind("job.toml:2: ", 0), 0u);
  EXPECT_EQ(refusal("[model]\nsize.deep = 1\n").rfind("job.toml:2: the value of 'model.size'", 0),
            0u);
}

TEST(Config, MissingFileIsNamed) {
  try {
    read_config("/no/such/job.toml");
    FAIL();
  } catch (const ConfigError& error) {
    EXPECT_STREQ(error.what(),
                 "--config /no/such/job.toml: cannot read the file: No such file or directory");
  }
}

TEST(Suggest, FindsSlips) {
  const std::vector<std::string> known{"strategy", "workers", "rate", "trace", "lr"};
  EXPECT_EQ(did_you_mean("stratgey", known), "; did you mean 'strategy'?");
  EXPECT_EQ(did_you_mean("worker", known), "; did you mean 'workers'?");
  EXPECT_EQ(did_you_mean("work", known), "; did you mean 'workers'?");
  EXPECT_EQ(did_you_mean("trate", known), "; did you mean 'rate' or 'trace'?");
  EXPECT_EQ(did_you_mean("banana", known), "");
  EXPECT_EQ(did_you_mean("x", known), "");
}

}  // namespace
}  // namespace skein
