#include "sim/profile.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "sim/profiles/architecture.h"
#include "sim/profiles/builtin.h"
#include "sim/profiles/image_network.h"
#include "skein/error.h"

namespace skein::sim {
namespace {

namespace fs = std::filesystem;
using namespace std::chrono_literals;
using Sizes = std::vector<std::int64_t>;

// ---- the built-in models

struct Expected {
  const char* name;
  std::int64_t parameters, tensors, batch;
  Duration iteration;
};

// Parameters and tensors as PyTorch's implementations have them, times as published.
constexpr Expected kExpected[] = {{"resnet50", 25'557'032, 161, 64, 229'400us},
                                  {"densenet201", 20'013'928, 604, 32, 212'500us},
                                  {"inceptionv4", 42'679'816, 449, 64, 353'200us},
                                  {"bert-base", 110'106'428, 206, 64, 292'100us},
                                  {"bert-large", 336'226'108, 398, 32, 422'200us}};

class BuiltinProfile : public testing::TestWithParam<Expected> {
 protected:
  const Profile profile = find_profile(GetParam().name);
};

INSTANTIATE_TEST_SUITE_P(All, BuiltinProfile, testing::ValuesIn(kExpected), [](const auto& info) {
  std::string name = info.param.name;
  std::erase(name, '-');
  return name;
});

TEST_P(BuiltinProfile, HasThePublishedNumberOfParametersAndTensors) {
  EXPECT_EQ(profile.parameters(), GetParam().parameters);
  EXPECT_EQ(profile.tensors(), GetParam().tensors);
}

TEST_P(BuiltinProfile, TimesSumToTheMeasurementToTheNanosecond) {
  EXPECT_EQ(profile.forward() + profile.backward(), GetParam().iteration);
  EXPECT_EQ(profile.forward(), GetParam().iteration / 3);
  EXPECT_EQ(profile.update, 0ns);
  EXPECT_EQ(profile.batch, GetParam().batch);
}

TEST_P(BuiltinProfile, BackwardTakesTwiceForwardInEveryLayer) {
  // Rounding down loses less than a nanosecond of each; the largest layer gets all of it back.
  const auto lost = Duration(static_cast<std::int64_t>(profile.layers.size()));
  int remainders = 0;
  for (const Layer& layer : profile.layers) {
    EXPECT_GT(layer.forward, 0ns) << layer.name;
    const Duration off = std::chrono::abs(layer.backward - 2 * layer.forward);
    EXPECT_LE(off, 2 * lost) << layer.name;
    if (off > 2ns) ++remainders;
  }
  EXPECT_LE(remainders, 1);
}

TEST_P(BuiltinProfile, NamesEveryLayerOnceAndItsSource) {
  std::set<std::string> names;
  for (const Layer& layer : profile.layers)
    EXPECT_TRUE(names.insert(layer.name).second) << layer.name << " twice";
  EXPECT_EQ(profile.name, GetParam().name);
  EXPECT_NE(profile.source.find("RTX 2080 Ti"), std::string::npos) << profile.source;
}

TEST(BuiltinProfiles, AreListedInOrder) {
  std::vector<std::string> expected;
  for (const Expected& each : kExpected) expected.emplace_back(each.name);
  EXPECT_EQ(builtin_profile_names(), expected);
}

const Layer& layer_of(const Profile& profile, const std::string& name) {
  const auto found = std::find_if(profile.layers.begin(), profile.layers.end(),
                                  [&](const Layer& layer) { return layer.name == name; });
  if (found == profile.layers.end()) throw std::runtime_error("no layer " + name);
  return *found;
}

void expect_sizes(const std::string& model, const std::map<std::string, Sizes>& expected) {
  const Profile profile = find_profile(model);
  for (const auto& [name, sizes] : expected)
    EXPECT_EQ(layer_of(profile, name).parameters, sizes) << model << " " << name;
}

TEST(BuiltinProfiles, TensorsHaveTheSizesOfTheirModules) {
  expect_sizes("resnet50", {{"conv1", {64 * 3 * 7 * 7}},
                            {"bn1", {64, 64}},
                            {"maxpool", {}},
                            {"layer1.0.downsample.0", {256 * 64}},
                            {"layer2.0.conv2", {128 * 128 * 3 * 3}},
                            {"layer4.2.bn3", {2048, 2048}},
                            {"fc", {2048 * 1000, 1000}}});
  expect_sizes("densenet201", {{"features.conv0", {64 * 3 * 7 * 7}},
                               {"features.denseblock1.denselayer2.norm1", {96, 96}},
                               {"features.denseblock3.denselayer48.conv1", {128 * 1760}},
                               {"features.denseblock4.denselayer32.conv2", {32 * 128 * 3 * 3}},
                               {"features.transition3.conv", {896 * 1792}},
                               {"features.norm5", {1920, 1920}},
                               {"classifier", {1920 * 1000, 1000}}});
  expect_sizes("inceptionv4", {{"features.0.conv", {32 * 3 * 3 * 3}},
                               {"features.3.conv.conv", {96 * 64 * 3 * 3}},
                               {"features.4.branch1.2.conv", {64 * 64 * 7}},
                               {"features.10.branch1.2.conv", {256 * 224 * 3 * 3}},
                               {"features.17.branch3.1.conv", {128 * 1024}},
                               {"features.21.branch2_3b.conv", {256 * 512 * 3}},
                               {"features.21.branch1_1a.bn", {256, 256}},
                               {"last_linear", {1536 * 1000, 1000}}});
}

TEST(BuiltinProfiles, TensorsOfBertHaveTheSizesOfTheirModules) {
  const auto sizes = [](std::int64_t h, int last) {
    const std::string layer = fmt::format("bert.encoder.layer.{}", last);
    return std::map<std::string, Sizes>{{"bert.embeddings.word_embeddings", {30522 * h}},
                                        {"bert.embeddings.position_embeddings", {512 * h}},
                                        {"bert.embeddings.token_type_embeddings", {2 * h}},
                                        {layer + ".attention.self.value", {h * h, h}},
                                        {layer + ".attention.self", {}},
                                        {layer + ".intermediate.dense", {4 * h * h, 4 * h}},
                                        {layer + ".output.dense", {4 * h * h, h}},
                                        {layer + ".output.LayerNorm", {h, h}},
                                        {"bert.pooler.dense", {h * h, h}},
                                        {"cls.predictions.transform.LayerNorm", {h, h}},
                                        {"cls.predictions.decoder", {30522}},
                                        {"cls.seq_relationship", {2 * h, 2}}};
  };
  expect_sizes("bert-base", sizes(768, 11));
  expect_sizes("bert-large", sizes(1024, 23));
}

TEST(BuiltinProfiles, LayersAreInTheOrderOfForward) {
  const auto first_and_last = [](const char* model) {
    const auto layers = find_profile(model).layers;
    return layers.front().name + " to " + layers.back().name;
  };
  EXPECT_EQ(first_and_last("resnet50"), "conv1 to fc");
  EXPECT_EQ(first_and_last("densenet201"), "features.conv0 to classifier");
  EXPECT_EQ(first_and_last("inceptionv4"), "features.0.conv to last_linear");
  EXPECT_EQ(first_and_last("bert-base"), "bert.embeddings.word_embeddings to cls.seq_relationship");

  std::vector<std::string> block;
  for (const Layer& layer : find_profile("resnet50").layers)
    if (layer.name.rfind("layer2.0.", 0) == 0) block.push_back(layer.name.substr(9));
  EXPECT_EQ(block, (std::vector<std::string>{"conv1", "bn1", "conv2", "bn2", "conv3", "bn3",
                                             "downsample.0", "downsample.1", "relu"}));
}

// ---- arithmetic

double giga_multiply_adds(const Architecture& architecture) {
  double sum = 0;
  for (const LayerWork& layer : architecture) sum += static_cast<double>(layer.multiply_adds);
  return sum / 1e9;
}

TEST(Architectures, MultiplyAddsAreThePublishedOnes) {
  EXPECT_NEAR(giga_multiply_adds(resnet50()), 4.089, 0.0005);     // torchvision
  EXPECT_NEAR(giga_multiply_adds(densenet201()), 4.291, 0.0005);  // torchvision
  // The OpenVINO model zoo's 24.584 GFLOPs, which count other operations, too.
  EXPECT_NEAR(giga_multiply_adds(inceptionv4()), 24.584 / 2, 0.06);
}

TEST(Architectures, MultiplyAddsOfBertFollowFromItsShape) {
  const auto expected = [](double h, double layers) {
    const double tokens = 64, vocabulary = 30522;
    const double encoder = layers * (12 * h * h + 2 * tokens * h);
    return (tokens * (encoder + h * h + vocabulary * h) + h * h + 2 * h) / 1e9;
  };
  EXPECT_NEAR(giga_multiply_adds(bert_base()), expected(768, 12), 1e-9);
  EXPECT_NEAR(giga_multiply_adds(bert_large()), expected(1024, 24), 1e-9);
}

TEST(Architectures, ElementwiseWorkIsASmallPart) {
  for (const auto& architecture :
       {resnet50(), densenet201(), inceptionv4(), bert_base(), bert_large()}) {
    double elementwise = 0;
    for (const LayerWork& layer : architecture)
      elementwise += static_cast<double>(layer.elementwise);
    const double share = elementwise / 1e9 / giga_multiply_adds(architecture);
    EXPECT_GT(share, 0.001) << architecture.back().name;
    EXPECT_LT(share, 0.05) << architecture.back().name;
  }
}

TEST(ImageNetwork, FollowsTheShape) {
  ImageNetwork net({3, 224, 224});
  net.conv("same", 8, {7, 7, 2});
  EXPECT_EQ(net.shape(), (Shape{8, 112, 112}));
  net.conv("valid", 4, {3, 1, 2, Window::kValid});
  EXPECT_EQ(net.shape(), (Shape{4, 55, 56}));
  net.concatenate({nullptr, [&] { net.conv("branch", 5, {1, 7}); }});
  EXPECT_EQ(net.shape(), (Shape{9, 55, 56}));
  net.pool_all("pool");
  EXPECT_EQ(net.shape(), (Shape{9, 1, 1}));
  net.linear("linear", 10);
  const Architecture layers = net.take();
  EXPECT_EQ(layers[1].parameters, (Sizes{8 * 4 * 3}));
  EXPECT_EQ(layers[1].multiply_adds, 8 * 4 * 3 * 55 * 56);
  EXPECT_EQ(layers[2].multiply_adds, 4 * 5 * 7 * 55 * 56);
  EXPECT_EQ(layers[4].multiply_adds, 90);
}

TEST(ImageNetworkDeathTest, BranchesMustFit) {
  ImageNetwork net({3, 8, 8});
  EXPECT_DEATH(net.concatenate({nullptr,
                                [&] {
                                  net.conv("half", 3, {3, 3, 2});
                                }}),
               "branches of 8 x 8 and 4 x 4");
  EXPECT_DEATH(net.linear("early", 10), "early on an image of 8 x 8");
}

TEST(Spread, GivesTheRemainderToTheLargestLayer) {
  const Architecture work{{"a", {}, 1, 0}, {"b", {1}, 2, 2}, {"c", {}, 1, 0}};
  const Profile profile = spread(work, 5, 30ns);
  ASSERT_EQ(profile.layers.size(), 3u);
  EXPECT_EQ(profile.layers[0].forward, 1ns);  // of 10: 10/6, 40/6, 10/6
  EXPECT_EQ(profile.layers[1].forward, 8ns);
  EXPECT_EQ(profile.layers[2].forward, 1ns);
  EXPECT_EQ(profile.layers[1].backward, 14ns);  // of 20: 20/6, 80/6, 20/6
  EXPECT_EQ(profile.batch, 5);
}

// ---- files

class ProfileFile : public testing::Test {
 protected:
  ProfileFile() {
    std::string pattern = (fs::temp_directory_path() / "skein-profile-XXXXXX").string();
    if (mkdtemp(pattern.data()) == nullptr) std::abort();
    folder_ = pattern;
    path_ = folder_ / "p.json";
  }
  ~ProfileFile() override { fs::remove_all(folder_); }

  void write(const std::string& text) const { std::ofstream(path_, std::ios::binary) << text; }

  std::string read() const {
    std::ifstream file(path_, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }

  // The error that reading `text` gives, without the folder.
  std::string refusal(const std::string& text) const {
    write(text);
    return refusal_of(path_);
  }

  std::string refusal_of(const fs::path& path) const {
    try {
      read_profile(path);
      return "accepted";
    } catch (const ConfigError& error) {
      const std::string what = error.what(), prefix = folder_.string() + "/";
      return what.rfind(prefix, 0) == 0 ? what.substr(prefix.size()) : "elsewhere: " + what;
    }
  }

  // ... of a good file with the value at a JSON pointer replaced, or removed.
  std::string refusal_with(const char* pointer, const nlohmann::json& value) const {
    nlohmann::json json = good();
    json[nlohmann::json::json_pointer(pointer)] = value;
    return refusal(json.dump());
  }
  std::string refusal_without(const char* parent, const char* key) const {
    nlohmann::json json = good();
    json[nlohmann::json::json_pointer(parent)].erase(key);
    return refusal(json.dump());
  }

  static nlohmann::json good() {
    return nlohmann::json::parse(R"({"name": "n", "source": "s", "batch": 8, "update_ms": 0.5,
      "layers": [{"name": "a", "parameters": [6, 2], "forward_ms": 1, "backward_ms": 2.000001},
                 {"name": "b", "parameters": [], "forward_ms": 0, "backward_ms": 0.25}]})");
  }

  fs::path folder_, path_;
};

void expect_equal(const Profile& a, const Profile& b) {
  EXPECT_EQ(a.name, b.name);
  EXPECT_EQ(a.source, b.source);
  EXPECT_EQ(a.batch, b.batch);
  EXPECT_EQ(a.update, b.update);
  ASSERT_EQ(a.layers.size(), b.layers.size());
  for (std::size_t i = 0; i < a.layers.size(); ++i) {
    EXPECT_EQ(a.layers[i].name, b.layers[i].name);
    EXPECT_EQ(a.layers[i].parameters, b.layers[i].parameters);
    EXPECT_EQ(a.layers[i].forward, b.layers[i].forward);
    EXPECT_EQ(a.layers[i].backward, b.layers[i].backward);
  }
}

TEST_F(ProfileFile, HoldsEveryBuiltinProfileExactly) {
  for (const std::string& name : builtin_profile_names()) {
    const Profile profile = find_profile(name);
    write_profile(path_, profile);
    expect_equal(read_profile(path_), profile);
  }
}

TEST_F(ProfileFile, KeepsNanosecondsAndOddNames) {
  Profile profile;
  profile.name = "\"quoted\"\n\\ {} ü";
  profile.update = 1ns;
  // The longest times have the fewest bits left for their nanoseconds.
  for (const Duration time : {0ns, 1ns, 999'999ns, 1'000'001ns, Duration(1h) - 1ns, Duration(1h)})
    profile.layers.push_back({"", {1, std::int64_t{1} << 30}, time, time / 3});
  write_profile(path_, profile);
  expect_equal(read_profile(path_), profile);
}

TEST_F(ProfileFile, IsOneLayerALine) {
  Profile profile{"n", "s", 8, {{"a", {6, 2}, 1ms, 2'000'001ns}, {"b", {}, 0ms, 250us}}, 500us};
  write_profile(path_, profile);
  EXPECT_EQ(read(), R"({
"name": "n",
"source": "s",
"batch": 8,
"update_ms": 0.5,
"layers": [
{"name":"a","parameters":[6,2],"forward_ms":1.0,"backward_ms":2.000001},
{"name":"b","parameters":[],"forward_ms":0.0,"backward_ms":0.25}
]
}
)");
  write(good().dump());
  expect_equal(read_profile(path_), profile);
}

TEST_F(ProfileFile, IsFoundByItsPath) {
  write(good().dump());
  EXPECT_EQ(find_profile(path_.string()).name, "n");
  write("{");
  EXPECT_THROW(find_profile(path_.string()), ConfigError);
}

TEST_F(ProfileFile, UnknownNamesListTheBuiltinOnes) {
  try {
    find_profile("resnet51");
    FAIL() << "accepted";
  } catch (const ConfigError& error) {
    EXPECT_STREQ(error.what(),
                 "no profile 'resnet51': expected resnet50, densenet201, inceptionv4, bert-base, "
                 "bert-large or the path of a profile file");
  }
  EXPECT_THROW(find_profile(""), ConfigError);
}

TEST_F(ProfileFile, FailedWritesLeaveWhatWasThere) {
  write("before");
  Profile profile;
  profile.name = "\xff";
  try {
    write_profile(path_, profile);
    FAIL() << "accepted";
  } catch (const Error& error) {
    EXPECT_EQ(
        error.what(),
        fmt::format("cannot write '{}': a name in the profile is not UTF-8 text", path_.string()));
  }
  EXPECT_EQ(read(), "before");
  EXPECT_THROW(write_profile(folder_ / "none" / "p.json", Profile{}), Error);
}

TEST_F(ProfileFile, MustBeAReadableFile) {
  EXPECT_EQ(refusal_of(folder_ / "none.json"), "none.json: no such file");
  fs::create_directory(folder_ / "sub");
  EXPECT_EQ(refusal_of(folder_ / "sub"), "sub: expected a file, found something else");
  write("");
  fs::resize_file(path_, (16 << 20) + 1);
  EXPECT_EQ(refusal_of(path_), "p.json: 16777217 bytes, expected at most 16777216");
}

TEST_F(ProfileFile, MustBeJson) {
  EXPECT_EQ(refusal("").substr(0, 49), "p.json: not JSON: parse error at line 1, column 1");
  EXPECT_EQ(refusal("{\"name\": \"n\",\n \"batch\" 8}").substr(0, 50),
            "p.json: not JSON: parse error at line 2, column 10");
  EXPECT_EQ(refusal("{} {}").substr(0, 49), "p.json: not JSON: parse error at line 1, column 4");
  EXPECT_EQ(refusal("{\"name\": \"\xff\"}").substr(0, 50),
            "p.json: not JSON: parse error at line 1, column 11");
  EXPECT_EQ(refusal("[1e999]"), "p.json: not JSON: number overflow parsing '1e999'");
}

TEST_F(ProfileFile, MustHaveExactlyItsKeys) {
  EXPECT_EQ(refusal("[]"),
            "p.json: expected an object with name, source, batch, update_ms, layers, found a list");
  for (const char* key : {"name", "source", "batch", "update_ms", "layers"})
    EXPECT_EQ(refusal_without("", key), fmt::format("p.json: no key \"{}\"", key));
  for (const char* key : {"name", "parameters", "forward_ms", "backward_ms"})
    EXPECT_EQ(refusal_without("/layers/1", key),
              fmt::format("p.json: layers[1]: no key \"{}\"", key));
  EXPECT_EQ(refusal_with("/bacth", 1),
            "p.json: unknown key \"bacth\", expected name, source, batch, update_ms, layers");
  EXPECT_EQ(refusal_with("/layers/0/time", 1),
            "p.json: layers[0]: unknown key \"time\", expected name, parameters, forward_ms, "
            "backward_ms");
  EXPECT_EQ(refusal_with("/layers/1", 3),
            "p.json: layers[1]: expected an object with name, parameters, forward_ms, backward_ms, "
            "found 3");
}

TEST_F(ProfileFile, TextMustBeText) {
  EXPECT_EQ(refusal_with("/name", 3), "p.json: name: expected text, found 3");
  EXPECT_EQ(refusal_with("/source", nullptr), "p.json: source: expected text, found null");
  EXPECT_EQ(refusal_with("/layers/0/name", nlohmann::json::object()),
            "p.json: layers[0].name: expected text, found an object");
}

TEST_F(ProfileFile, BatchMustBeAWholeNumberFromOne) {
  const std::string expected =
      "p.json: batch: expected a whole number from 1 to 2147483648, found ";
  EXPECT_EQ(refusal_with("/batch", 0), expected + "0");
  EXPECT_EQ(refusal_with("/batch", -8), expected + "-8");
  EXPECT_EQ(refusal_with("/batch", 1.5), expected + "1.5");
  EXPECT_EQ(refusal_with("/batch", "8"), expected + "\"8\"");
  EXPECT_EQ(refusal_with("/batch", UINT64_MAX), expected + "18446744073709551615");
  EXPECT_EQ(refusal_with("/batch", std::string(90, 'x')),
            expected + "\"" + std::string(39, 'x') + "...");
}

TEST_F(ProfileFile, TimesMustBeMillisecondsFromZeroToAnHour) {
  const std::string expected = ": expected milliseconds from 0 to 3600000, found ";
  EXPECT_EQ(refusal_with("/update_ms", -0.001), "p.json: update_ms" + expected + "-0.001");
  EXPECT_EQ(refusal_with("/layers/0/forward_ms", -1),
            "p.json: layers[0].forward_ms" + expected + "-1");
  EXPECT_EQ(refusal_with("/layers/1/backward_ms", "2ms"),
            "p.json: layers[1].backward_ms" + expected + "\"2ms\"");
  EXPECT_EQ(refusal_with("/layers/1/backward_ms", 3600001),
            "p.json: layers[1].backward_ms" + expected + "3600001");
}

TEST_F(ProfileFile, TensorsMustHaveElementsAndNotTooMany) {
  const std::string expected =
      "p.json: layers[0].parameters[1]: expected a whole number from 1 to "
      "1099511627776, found ";
  EXPECT_EQ(refusal_with("/layers/0/parameters/1", 0), expected + "0");
  EXPECT_EQ(refusal_with("/layers/0/parameters/1", true), expected + "true");
  EXPECT_EQ(refusal_with("/layers/0/parameters/1", 1099511627777), expected + "1099511627777");
  EXPECT_EQ(refusal_with("/layers/0/parameters", 8),
            "p.json: layers[0].parameters: expected a list, found 8");
  EXPECT_EQ(refusal_with("/layers/1/parameters", {1099511627776}),
            "p.json: layers[1]: 1099511627784 parameters up to here, expected at most "
            "1099511627776");
}

TEST_F(ProfileFile, NeedsLayersAndParameters) {
  EXPECT_EQ(refusal_with("/layers", nlohmann::json::array()),
            "p.json: layers: a list of 0, expected 1 to 100000");
  EXPECT_EQ(refusal_with("/layers", nlohmann::json(std::vector<int>(100'001))),
            "p.json: layers: a list of 100001, expected 1 to 100000");
  EXPECT_EQ(refusal_with("/layers/0/parameters", nlohmann::json::array()),
            "p.json: layers: no parameters, expected some in at least one layer");
  EXPECT_EQ(refusal(good().dump()), "accepted");
}

}  // namespace
}  // namespace skein::sim
