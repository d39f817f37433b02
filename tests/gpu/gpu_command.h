// `skein train` on the GPUs of this machine. The tests themselves never touch them: a process that
// has, and forks, has none in its children.
#pragma once

#include <algorithm>
#include <filesystem>
#include <string>

#include "multiproc/paths.h"
#include "multiproc/train_command.h"

namespace skein::testing {

// What `skein doctor` says of this machine's GPUs.
struct Doctor {
  int gpus = 0;
  std::string why_none;
};

inline Doctor ask_doctor() {
  if (!std::filesystem::exists("/dev/nvidia0") && !std::filesystem::exists("/dev/nvidiactl"))
    return {0, "this machine has no NVIDIA GPU (no /dev/nvidia0)"};
  const Folder folder;
  const Finished end = Process({kSkein, "doctor", "--quiet", "--json", folder / "d.json"}).wait();
  EXPECT_EQ(end.code, 0) << end.err;
  const Json json = json_of(folder / "d.json");
  return {static_cast<int>(json.at("gpus").size()), json.at("why_no_gpu")};
}

class OnGpu : public ::testing::Test {
 protected:
  void SetUp() override {
    doctor_ = ask_doctor();
    if (doctor_.gpus == 0) GTEST_SKIP() << doctor_.why_none;
  }

  Doctor doctor_;
  Folder folder_;
};

}  // namespace skein::testing
