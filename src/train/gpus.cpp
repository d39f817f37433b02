#include "train/gpus.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/wait.h>
#include <torch/torch.h>
#include <unistd.h>

#include <nlohmann/json.hpp>

#include "core/file_descriptor.h"
#include "cuda/cuda.h"
#include "skein/error.h"
#include "torch/torch_stream.h"

namespace skein {
namespace {

using Json = nlohmann::json;

std::string print(const Gpus& gpus) {
  Json devices = Json::array();
  for (const Gpu& each : gpus.devices)
    devices.push_back({each.name, each.memory_bytes, each.free_bytes});
  return Json{
      {"count", gpus.count}, {"devices", devices}, {"why", gpus.why_none}, {"torch", gpus.in_torch}}
      .dump();
}

Gpus parse(const std::string& text) {
  const Json json = Json::parse(text, nullptr, false);
  if (!json.is_object()) return {0, {}, "a child process that asked the driver has died", false};
  Gpus gpus{json["count"], {}, json["why"], json["torch"]};
  for (const Json& each : json["devices"]) gpus.devices.push_back({each[0], each[1], each[2]});
  return gpus;
}

std::string read_all(int descriptor) {
  std::string text;
  char part[4096];
  for (ssize_t got = 0; (got = ::read(descriptor, part, sizeof(part))) > 0;)
    text.append(part, static_cast<std::size_t>(got));
  return text;
}

// What a child does, and all that it does.
[[noreturn]] void answer(int descriptor) noexcept {
  const std::string text = print(count_gpus());
  const ssize_t written = ::write(descriptor, text.data(), text.size());
  ::_exit(written == static_cast<ssize_t>(text.size()) ? 0 : 1);
}

}  // namespace

Gpus count_gpus() {
  Gpus gpus;
  gpus.in_torch = at::globalContext().hasCUDART();
  if (gpus.in_torch) gpus.why_none = why_no_cuda();
  if (gpus.why_none.empty()) gpus.why_none = why_no_torch_cuda();
  if (gpus.why_none.empty()) gpus.count = static_cast<int>(torch::cuda::device_count());
  return gpus;
}

Gpus find_gpus() {
  Gpus gpus = count_gpus();
  if (gpus.count == 0) return gpus;
  for (const CudaDevice& each : cuda_devices())
    gpus.devices.push_back(
        {each.name, static_cast<std::int64_t>(each.memory), static_cast<std::int64_t>(each.free)});
  return gpus;
}

Gpus count_gpus_in_a_child() {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) throw Error("no pipe to a child process could be made");
  const FileDescriptor from(ends[0]);
  FileDescriptor to(ends[1]);
  const pid_t child = ::fork();
  if (child < 0) throw Error("no child process could be made to look for GPUs");
  if (child == 0) answer(to.get());
  to = FileDescriptor();
  const std::string text = read_all(from.get());
  ::waitpid(child, nullptr, 0);
  return parse(text);
}

}  // namespace skein
