// A worker that trains each case once with either strategy:
//   dear_program FOLDER BYTES_PER_SECOND CASE...
// Rank r writes what it saw in a case, final parameters included, as raw floats to
// FOLDER/CASE.STRATEGY.r; rank 0 prints the figures of each as one line of JSON.
#include <cstdio>
#include <fstream>
#include <nlohmann/json.hpp>

#include "programs/trial.h"

namespace skein::testing {
namespace {

void write(const Trial& trial, const std::string& path) {
  std::ofstream file(path, std::ios::binary);
  file.write(reinterpret_cast<const char*>(trial.seen.data()),
             static_cast<std::streamsize>(trial.seen.size() * sizeof(float)));
  if (!file.flush()) throw Error("cannot write " + path);
}

void run_case(World& world, const std::string& name, void (*body)(Trial&),
              const std::string& folder) {
  for (const char* strategy : {"allreduce", "dear"}) {
    torch::manual_seed(static_cast<std::uint64_t>(world.rank()) + 1);
    Trial trial{
        .world = world, .strategy = StrategySpec(strategy).set("fusion", "64KB"), .folder = folder};
    body(trial);
    write(trial, folder + "/" + name + "." + strategy + "." + std::to_string(world.rank()));
    const auto waits = world.sum({static_cast<double>(trial.waits)});
    if (world.rank() != 0) continue;
    const nlohmann::json figures{{"case", name},
                                 {"strategy", strategy},
                                 {"waits", waits[0]},
                                 {"state", trial.state},
                                 {"plane", trial.plane},
                                 {"buckets", trial.buckets},
                                 {"reordered", trial.reordered},
                                 {"parameters", trial.parameters}};
    std::printf("%s\n", figures.dump().c_str());
  }
}

int run(const std::vector<std::string>& words) {
  std::string now = "join";
  try {
    World world = World::join(
        {.patience = std::chrono::seconds(20), .emulate_bytes_per_second = std::stod(words.at(1))});
    Cases cases = training_cases();
    for (Cases more : {reading_cases(), order_cases(), wire_cases()}) cases.merge(more);
    for (std::size_t i = 2; i < words.size(); ++i) {
      now = words[i];
      run_case(world, now, cases.at(now), words[0]);
    }
    world.barrier();
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s: %s\n", now.c_str(), error.what());
    return 1;
  }
}

}  // namespace
}  // namespace skein::testing

int main(int argc, char** argv) { return skein::testing::run({argv + 1, argv + argc}); }
