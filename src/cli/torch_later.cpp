// Of skein, which has no torch: what needs it makes this process skein-torch.
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "cli/with_torch.h"
#include "skein/error.h"
#include "train/gpus.h"
#include "train/train.h"
#include "train/version.h"
#include "train/virtual_cluster.h"

namespace skein {
namespace {

namespace fs = std::filesystem;

// As this process was started.
std::vector<std::string> own_arguments() {
  std::ifstream file("/proc/self/cmdline", std::ios::binary);
  const std::string all((std::istreambuf_iterator<char>(file)), {});
  std::vector<std::string> arguments;
  for (std::size_t at = 0; at < all.size(); at += arguments.back().size() + 1)
    arguments.emplace_back(all.c_str() + at);
  return arguments;
}

[[noreturn]] void become_torch() {
  with_torch();
  std::abort();  // which has not returned
}

}  // namespace

// In a build folder it lies beside this program; where both are installed, in a folder of its own.
void with_torch() {
  const fs::path folder = fs::read_symlink("/proc/self/exe").parent_path();
  std::vector<std::string> arguments = own_arguments();
  std::vector<char*> words;
  words.reserve(arguments.size() + 1);
  for (std::string& each : arguments) words.push_back(each.data());
  words.push_back(nullptr);
  std::string why;
  for (const fs::path& program :
       {folder / "skein-torch", folder / SKEIN_LIBEXEC_FROM_BIN / "skein-torch"}) {
    ::execv(program.c_str(), words.data());
    why += fmt::format("{}{}: {}", why.empty() ? "" : ", ", program.lexically_normal().string(),
                       std::strerror(errno));
  }
  throw Error(fmt::format(
      "the part of skein that has torch cannot be started ({}): expected it where it was installed "
      "with this program",
      why));
}

int run_training(const TrainOptions&) { become_torch(); }
sim::Profile measure_profile(const ProfileOptions&, World&) { become_torch(); }
std::unique_ptr<sim::Objective> make_model_objective(const TrainOptions&, int,
                                                     std::optional<double>, bool) {
  become_torch();
}
std::string torch_version() { become_torch(); }
Gpus find_gpus() { become_torch(); }

// Where there is no driver torch need not be asked.
Gpus count_gpus_in_a_child() {
  for (const char* driver : {"/dev/nvidiactl", "/dev/dxg"})
    if (fs::exists(driver)) become_torch();
  return {0, {}, "this host has no driver of NVIDIA's: /dev/nvidiactl is missing", false};
}

}  // namespace skein
