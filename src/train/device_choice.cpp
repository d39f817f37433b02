#include <fmt/format.h>

#include "core/parse_number.h"
#include "skein/error.h"
#include "train/gpus.h"

namespace skein {

DeviceChoice parse_device(const std::string& text) {
  if (text == "cpu") return {DeviceChoice::cpu};
  if (text == "auto") return {DeviceChoice::automatic};
  if (text == "cuda") return {DeviceChoice::cuda};
  int index = 0;
  if (text.starts_with("cuda:") && parse_number(text.substr(5), index) && index >= 0)
    return {DeviceChoice::cuda, index};
  throw ConfigError(fmt::format("--device {}: expected cpu, cuda, cuda:K or auto", text));
}

int gpu_of_worker(const DeviceChoice& choice, const Gpus& gpus, int local_rank) {
  if (choice.kind == DeviceChoice::cpu) return -1;
  const int count = gpus.count;
  if (count == 0) {
    if (choice.kind == DeviceChoice::automatic) return -1;
    throw ConfigError(fmt::format("--device cuda{}: there is no GPU to use: {}",
                                  choice.index < 0 ? "" : fmt::format(":{}", choice.index),
                                  gpus.why_none));
  }
  if (choice.index < 0) return local_rank % count;
  if (choice.index < count) return choice.index;
  throw ConfigError(fmt::format("--device cuda:{}: this host has {}; expected cuda:0{}",
                                choice.index,
                                count == 1 ? "one GPU" : fmt::format("{} GPUs", count),
                                count == 1 ? "" : fmt::format(" to cuda:{}", count - 1)));
}

}  // namespace skein
