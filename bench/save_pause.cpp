// How long save_checkpoint() stops training, when a thread writes and when it waits for the disk:
//   bench_save_pause [MILLIONS of parameters] [FOLDER]
//   skein run -n 2 -- bench_save_pause
// And how long verify() takes, which is a part of it. AdamW; two steps between saves. Without
// arguments: 50, in a folder of the temporary ones.
#include <fmt/format.h>
#include <torch/torch.h>

#include <algorithm>
#include <chrono>
#include <filesystem>

#include "skein/torch.h"

namespace {

double seconds_of(const auto& action) {
  const auto begin = std::chrono::steady_clock::now();
  action();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

}  // namespace

int main(int count, char** words) try {
  const std::int64_t millions = count > 1 ? std::atoll(words[1]) : 50;
  const std::string folder =
      count > 2 ? words[2] : (std::filesystem::temp_directory_path() / "skein-save-pause").string();
  auto world = skein::World::join();
  torch::nn::Sequential net;
  for (int layer = 0; layer < 10; ++layer)
    net->push_back(torch::nn::Linear(torch::nn::LinearOptions(1000, 100 * millions).bias(false)));
  auto run = skein::distribute(world, *net, skein::adamw(1e-4));
  const auto step = [&] {
    torch::Tensor loss = torch::zeros({});
    for (const auto& each : net->parameters()) loss = loss + each.square().mean();
    loss.backward();
    run.step(1);
  };
  for (const bool wait : {true, false}) {
    std::vector<double> pauses, steps, rests;
    for (int save = 0; save < 5; ++save) {
      step();
      pauses.push_back(
          seconds_of([&] { run.save_checkpoint(folder, {}, {.keep = 1, .wait = wait}); }));
      steps.push_back(seconds_of(step));
      rests.push_back(seconds_of([&] { run.wait_for_checkpoint(); }));
    }
    if (world.rank() == 0)
      fmt::print(
          "{} M parameters, {} worker{}, {}: training stops for {:.3f} s (median of 5); the "
          "next step takes {:.3f} s; on the disk {:.3f} s after that\n",
          millions, world.size(), world.size() == 1 ? "" : "s",
          wait ? "waiting for the disk" : "a thread writes", median(pauses), median(steps),
          median(rests));
  }
  std::vector<double> comparisons;
  for (int i = 0; i < 5; ++i) comparisons.push_back(seconds_of([&] { run.verify(); }));
  if (world.rank() == 0) fmt::print("verify() takes {:.3f} s (median of 5)\n", median(comparisons));
  world.barrier();
  if (world.rank() == 0) std::filesystem::remove_all(folder);
  return 0;
} catch (const skein::Error& error) {
  fmt::print(stderr, "{}\n", error.what());
  return 1;
}
