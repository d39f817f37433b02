// Skein, installed into an empty folder, and the examples, built there as a stranger would: once
// for all tests.
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <string>
#include <vector>

#include "multiproc/process.h"

namespace skein::testing {

constexpr std::chrono::minutes kLimit{9};

// Runs a command that must succeed and returns what it printed.
inline std::string must(std::vector<std::string> argv) {
  const Finished finished = Process(argv).wait(kLimit);
  EXPECT_EQ(finished.code, 0) << argv[0] << " " << argv[1] << "\n" << finished.out << finished.err;
  return finished.out;
}

class Installed {
 public:
  static const Installed& get() {
    static const Installed once;
    return once;
  }

  std::string prefix() const { return folder_ / "prefix"; }
  std::string skein() const { return prefix() + "/bin/skein"; }

  std::string example(const std::string& name) const { return folder_ / "build/" + name; }

  // Builds a program when it is first asked for, or all of them.
  void build(const std::vector<std::string>& targets = {}) const {
    std::vector<std::string> argv{SKEIN_CMAKE, "--build", folder_ / "build"};
    if (!targets.empty()) argv.emplace_back("--target");
    argv.insert(argv.end(), targets.begin(), targets.end());
    must(argv);
  }

 private:
  Installed() {
    must({SKEIN_CMAKE, "--install", SKEIN_BUILD_DIR, "--prefix", prefix()});
    // What only Skein's own build needs, a user need not have. Little optimisation: it is for a
    // test.
    must({SKEIN_CMAKE, "-S", SKEIN_SOURCE_DIR "/examples", "-B", folder_ / "build", "-G",
          SKEIN_GENERATOR, "-DCMAKE_BUILD_TYPE=Release", "-DCMAKE_CXX_FLAGS_RELEASE=-O1",
          "-DCMAKE_PREFIX_PATH=" + prefix(), "-DTorch_DIR=" SKEIN_TORCH_DIR,
          "-DCMAKE_DISABLE_FIND_PACKAGE_CLI11=ON", "-DCMAKE_DISABLE_FIND_PACKAGE_tomlplusplus=ON",
          "-DCMAKE_DISABLE_FIND_PACKAGE_nlohmann_json=ON"});
  }

  Folder folder_;
};

}  // namespace skein::testing
