// Installs Skein into an empty folder and uses it from there as a stranger would: builds the
// project examples/train_your_model and runs it.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <nlohmann/json.hpp>

#include "installed.h"
#include "multiproc/model_file.h"

namespace skein::testing {
namespace {

double last_loss(const std::string& output) {
  const std::size_t at = output.rfind("loss ");
  return at == std::string::npos ? INFINITY : std::stod(output.substr(at + 5));
}

// The dynamic linker prints what it loads in the order in which it looks for symbols there.
// LibTorch may bring a std::filesystem of another compiler: the program must not find that one.
void expect_standard_library_first(const std::string& program) {
  const std::string libraries =
      Process({program}, {{"LD_TRACE_LOADED_OBJECTS", "1"}}).wait(kLimit).out;
  const std::size_t torch = libraries.find("libtorch");
  ASSERT_NE(torch, std::string::npos) << libraries;
  EXPECT_LT(libraries.find("libstdc++"), torch) << program << "\n" << libraries;
}

TEST(Example, AnotherProjectTrainsWithTheInstalledPackage) {
  const Folder folder;
  const std::string prefix = Installed::get().prefix();
  ASSERT_TRUE(std::filesystem::exists(prefix + "/include/skein/torch.h"));
  for (const auto& each : std::filesystem::directory_iterator(prefix + "/include"))
    EXPECT_EQ(each.path().filename(), "skein") << "an internal header was installed";
  if (HasFailure()) return;

  Installed::get().build({"train_your_model"});
  const std::string program = Installed::get().example("train_your_model/train_your_model");
  expect_standard_library_first(program);
  expect_standard_library_first(prefix + "/libexec/skein/skein-torch");
  const std::string one = folder / "one.safetensors", two = folder / "two.safetensors";
  const std::string alone = must({program, "64", one});
  const std::string together =
      must({prefix + "/bin/skein", "run", "-n", "2", "--", program, "32", two});
  EXPECT_NE(alone.find("1 worker, 60060 samples"), std::string::npos) << alone;
  EXPECT_NE(together.find("2 workers, 60060 samples"), std::string::npos) << together;
  EXPECT_LT(last_loss(alone), 0.05) << alone;
  EXPECT_LT(last_loss(together), 0.05) << together;

  // Not the same bits: a batch of 64 is summed in another order than two of 32.
  const auto a = flat(read_model(one)), b = flat(read_model(two));
  ASSERT_EQ(a.size(), 2U * 64 + 64 + 64 * 64 + 64 + 64 * 2 + 2);
  ASSERT_EQ(a.size(), b.size());
  double difference = 0, norm = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    difference += std::pow(static_cast<double>(a[i]) - static_cast<double>(b[i]), 2);
    norm += std::pow(static_cast<double>(a[i]), 2);
  }
  EXPECT_LT(std::sqrt(difference / norm), 1e-5);
}

class SkeinsSource : public ::testing::TestWithParam<const char*> {};

// Compiling all of Skein once more would tell little: that the program compiles, and how it and
// Skein would be compiled and linked, is enough.
TEST_P(SkeinsSource, IsPartOfAnotherProject) {
  if (std::string(SKEIN_GENERATOR) != "Ninja") GTEST_SKIP() << "only Ninja shows its commands";
  const Folder folder;
  must({SKEIN_CMAKE, "-S", std::string(SKEIN_SOURCE_DIR "/tests/example/") + GetParam(), "-B",
        folder / "build", "-G", SKEIN_GENERATOR, "-DSKEIN_SOURCE_DIR=" SKEIN_SOURCE_DIR,
        "-DTorch_DIR=" SKEIN_TORCH_DIR});
  const std::string commands = must({SKEIN_NINJA, "-C", folder / "build", "-t", "commands", "app"});
  const std::size_t link = commands.rfind("-o app");
  ASSERT_NE(link, std::string::npos) << commands;
  const std::string line = commands.substr(commands.rfind('\n', link) + 1);
  ASSERT_NE(line.find("libtorch"), std::string::npos) << line;
  EXPECT_LT(line.find("-l:libstdc++.so.6"), line.find("libtorch")) << line;
  EXPECT_EQ(commands.find("-Werror"), std::string::npos) << "another compiler may warn of more";
  EXPECT_EQ(commands.find("tests/"), std::string::npos) << "tests are for Skein's own build";
  if (GetParam() == std::string("subdirectory")) return;  // the same from here on
  const std::size_t object = commands.find("CMakeFiles/app.dir/");
  ASSERT_NE(object, std::string::npos) << commands;
  must({SKEIN_NINJA, "-C", folder / "build",
        commands.substr(object, commands.find_first_of(" \n", object) - object)});
}

INSTANTIATE_TEST_SUITE_P(As, SkeinsSource, ::testing::Values("subdirectory", "fetched"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace skein::testing
