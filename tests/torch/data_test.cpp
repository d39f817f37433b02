#include <gtest/gtest.h>

#include <atomic>
#include <numeric>
#include <thread>

#include "data/glyphs.h"
#include "data/open.h"
#include "data/prefetch.h"
#include "data/settings.h"
#include "torch/data_files.h"

namespace skein {
namespace {

using test::Bytes;
using test::DataFolder;
using test::expect_refused;

std::vector<std::uint32_t> range(std::uint32_t begin, std::uint32_t end) {
  std::vector<std::uint32_t> indices(end - begin);
  std::iota(indices.begin(), indices.end(), begin);
  return indices;
}

// FNV-1a.
std::uint64_t hash(std::uint64_t value, std::span<const std::uint8_t> bytes) {
  for (const std::uint8_t byte : bytes) value = (value ^ byte) * 0x100000001b3u;
  return value;
}

TEST(Glyphs, AreTheSameBytesOnEveryMachine) {
  std::uint64_t value = 0xcbf29ce484222325u;
  for (std::uint32_t i = 0; i < 500; ++i) {
    value = hash(value, draw_glyph(20, GlyphPart::train, i).bytes());
    value = hash(value, draw_glyph(20, GlyphPart::test, i).bytes());
  }
  EXPECT_EQ(value, 0x66479deb80a6ff8u);
}

TEST(Glyphs, HaveTheSizesAndBalancedClasses) {
  const DataSets data = open_data("glyphs", {{"train", "500"}, {"test", "100"}}, 1);
  EXPECT_EQ(data.train->size(), 500);
  EXPECT_EQ(data.test->size(), 100);
  EXPECT_EQ(data.train->sample_shape(), (std::vector<std::int64_t>{3, 32, 32}));
  EXPECT_EQ(data.train->classes(), 10);
  const Batch batch = data.train->get(range(0, 500));
  EXPECT_EQ(batch.samples(), 500);
  EXPECT_TRUE(torch::equal(torch::bincount(batch.target), torch::full({10}, 50, torch::kInt64)));
  EXPECT_NEAR(batch.data.mean().item<float>(), 0, 0.1);
  EXPECT_NEAR(batch.data.std().item<float>(), 1, 0.1);
}

TEST(Glyphs, APictureDoesNotDependOnTheOthersOrTheRunsSeed) {
  const DataSets few = open_data("glyphs", {{"train", "20"}, {"test", "10"}}, 1);
  const DataSets many = open_data("glyphs", {{"train", "50"}, {"test", "30"}}, 2);
  EXPECT_TRUE(torch::equal(few.train->get(range(0, 20)).data, many.train->get(range(0, 20)).data));
  EXPECT_TRUE(torch::equal(few.test->get(range(0, 10)).data, many.test->get(range(0, 10)).data));
  EXPECT_FALSE(torch::equal(few.train->get(range(0, 10)).data, few.test->get(range(0, 10)).data));
}

TEST(Glyphs, ASettingChoosesOtherPictures) {
  const auto first = [](const char* seed, std::uint64_t run_seed) {
    const Settings settings{{"train", "10"}, {"test", "1"}, {"seed", seed}};
    return open_data("glyphs", settings, run_seed).train->get(range(0, 10)).data;
  };
  EXPECT_FALSE(torch::equal(first("3", 1), first("4", 1)));
  EXPECT_TRUE(torch::equal(first("3", 1), first("3", 2)));
  EXPECT_TRUE(torch::equal(first("3", 1), first("run", 3)));
}

TEST(Glyphs, GetKeepsTheOrderAndIsThreadSafe) {
  const DataSets data = open_data("glyphs", {{"train", "200"}, {"test", "1"}}, 1);
  const Batch all = data.train->get(range(0, 200));
  const std::vector<std::uint32_t> mixed{150, 3, 3, 77};
  const Batch some = data.train->get(mixed);
  for (std::int64_t i = 0; i < 4; ++i) {
    EXPECT_TRUE(torch::equal(some.data[i], all.data[mixed[static_cast<std::size_t>(i)]]));
    EXPECT_EQ(some.target[i].item<std::int64_t>(), mixed[static_cast<std::size_t>(i)] % 10);
  }
  std::atomic<int> equal = 0;
  {
    std::vector<std::jthread> threads;
    for (int t = 0; t < 4; ++t)
      threads.emplace_back(
          [&] { equal += torch::equal(data.train->get(range(0, 200)).data, all.data) ? 1 : 0; });
  }
  EXPECT_EQ(equal, 4);
}

TEST(OpenData, SaysWhatIsAllowed) {
  const auto open = [](const std::string& spec, const Settings& settings) {
    return [=] { open_data(spec, settings, 1); };
  };
  expect_refused(open("imagenet", {}), {"'imagenet'", "glyphs", "mnist:DIR", "text:FILE"});
  expect_refused(open("glyphs:x", {}), {"glyphs takes no path"});
  expect_refused(open("mnist", {}), {"no path", "mnist:DIR"});
  expect_refused(open("cifar10:", {}), {"no path"});
  expect_refused(open("glyphs", {{"trian", "5"}}), {"data.trian=5", "seed, test, train"});
  expect_refused(open("glyphs", {{"train", "0"}}), {"data.train=0", "from 1 to"});
  expect_refused(open("glyphs", {{"train", "5x"}}), {"data.train=5x", "whole number"});
  expect_refused(open("glyphs", {{"seed", "-1"}}), {"data.seed=-1", "run"});
  expect_refused(open("mnist:/nowhere", {{"size", "5"}}), {"data.size=5", "no settings"});
  for (const char* spec :
       {"mnist:/nowhere", "cifar10:/nowhere", "images:/nowhere", "text:/nowhere"})
    expect_refused(open(spec, {}), {"/nowhere", "no such"});
}

TEST(Settings, ReadsTypesStrictly) {
  const Settings settings{{"depth", "12"}, {"tied", "false"}, {"seed", "18446744073709551615"}};
  SettingsReader reader("model", settings);
  EXPECT_EQ(reader.integer("depth", 3, 0, 12), 12);
  EXPECT_EQ(reader.integer("width", 3, 4, 12), 3);
  EXPECT_FALSE(reader.flag("tied", true));
  EXPECT_TRUE(reader.flag("other", true));
  EXPECT_EQ(reader.seed("seed", 0, 0), 18446744073709551615u);
  EXPECT_NO_THROW(reader.finish("it"));
  expect_refused([&] { reader.integer("depth", 3, 0, 11); }, {"model.depth=12", "from 0 to 11"});
  expect_refused([&] { reader.flag("depth", true); }, {"model.depth=12", "true or false"});
  for (const char* bad : {"", " 1", "1 ", "1.5", "0x10", "1e3", "99999999999999999999"}) {
    const Settings wrong{{"depth", bad}};
    SettingsReader strict("model", wrong);
    EXPECT_THROW(strict.integer("depth", 3, 0, 12), ConfigError) << bad;
  }
}

TEST(Text, SamplesAreConsecutiveAndTargetsTheNextCharacters) {
  const DataFolder folder;
  std::string text;
  for (int i = 0; i < 100; ++i) text += "abc\n";  // 400 bytes: 360 to train, 40 to test
  folder.write("text", Bytes(text.begin(), text.end()));
  const DataSets data = open_data("text:" + folder / "text", {{"context", "5"}}, 1);
  EXPECT_EQ(data.train->classes(), 4);
  EXPECT_EQ(data.train->size(), 71);  // 71 · 5 and the next one are 356 of 360
  EXPECT_EQ(data.test->size(), 7);
  EXPECT_EQ(data.train->sample_shape(), (std::vector<std::int64_t>{5}));
  // In order of their value: newline 0, a 1, b 2, c 3.
  const Batch batch = data.train->get(range(0, 2));
  const auto tokens = [](std::vector<std::int64_t> values) {
    return torch::tensor(values, torch::kInt64).view({2, 5});
  };
  EXPECT_TRUE(torch::equal(batch.data, tokens({1, 2, 3, 0, 1, 2, 3, 0, 1, 2})));
  EXPECT_TRUE(torch::equal(batch.target, tokens({2, 3, 0, 1, 2, 3, 0, 1, 2, 3})));
  const std::vector<std::uint32_t> last{70};
  EXPECT_EQ(data.train->get(last).target[0][4].item<std::int64_t>(), 0);  // byte 355, a newline
}

TEST(Text, TooShortIsAnError) {
  const DataFolder folder;
  folder.write("empty", {});
  folder.write("short", Bytes(1289, 'a'));
  folder.write("enough", Bytes(1290, 'a'));
  expect_refused([&] { open_data("text:" + folder / "empty", {}, 1); }, {"0 bytes", "1290"});
  expect_refused([&] { open_data("text:" + folder / "short", {}, 1); }, {"1289 bytes", "1290"});
  EXPECT_EQ(open_data("text:" + folder / "enough", {}, 1).test->size(), 1);
  expect_refused([&] { open_data("text:" + folder.path(), {}, 1); }, {"expected a file"});
}

}  // namespace
}  // namespace skein
