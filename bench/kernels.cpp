// Each kernel's rate beside memcpy's in the same run: bench_kernels [--json FILE]
#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <exception>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "kernels/measure.h"
#include "skein/error.h"

namespace {

nlohmann::json to_json(const skein::KernelRate& rate) {
  return {{"kernel", rate.kernel},
          {"bytes", rate.bytes},
          {"bytes_per_second", rate.bytes_per_second},
          {"memcpy_bytes_per_second", rate.memcpy_bytes_per_second},
          {"ratio", rate.ratio()}};
}

// A reader never sees half a file: it gets its name when it is whole.
void write_file(const std::filesystem::path& path, const std::string& text) {
  const std::filesystem::path unfinished = path.string() + ".tmp";
  std::FILE* file = std::fopen(unfinished.c_str(), "w");
  bool good = file != nullptr;
  good = good && std::fwrite(text.data(), 1, text.size(), file) == text.size() &&
         std::fflush(file) == 0 && fsync(fileno(file)) == 0;
  if (file != nullptr) good = std::fclose(file) == 0 && good;
  std::error_code error;
  if (good) std::filesystem::rename(unfinished, path, error);
  if (!good || error)
    throw skein::ConfigError(fmt::format("--json {}: cannot be written", path.string()));
}

int run(int argc, char** argv) {
  const bool json_wanted = argc == 3 && std::strcmp(argv[1], "--json") == 0;
  if (argc != 1 && !json_wanted) throw skein::ConfigError("expected no option or --json FILE");
  nlohmann::json rows = nlohmann::json::array();
  fmt::print("{:<22}{:>10}{:>10}{:>14}{:>8}\n", "kernel", "KiB each", "GB/s", "memcpy GB/s",
             "ratio");
  for (const std::size_t bytes : {std::size_t{4096}, std::size_t{1} << 20, std::size_t{64} << 20})
    for (const skein::KernelRate& rate : skein::measure_kernels(bytes)) {
      fmt::print("{:<22}{:>10}{:>10.1f}{:>14.1f}{:>8.2f}\n", rate.kernel, rate.bytes / 1024,
                 rate.bytes_per_second / 1e9, rate.memcpy_bytes_per_second / 1e9, rate.ratio());
      rows.push_back(to_json(rate));
    }
  if (json_wanted)
    write_file(argv[2],
               nlohmann::json{{"command", "bench_kernels"}, {"rates", rows}}.dump(2) + "\n");
  return 0;
}

}  // namespace

int main(int argc, char** argv) try {
  return run(argc, argv);
} catch (const skein::ConfigError& error) {
  fmt::print(stderr, "bench_kernels: {}\n", error.what());
  return 2;
} catch (const std::exception& error) {
  fmt::print(stderr, "bench_kernels: {}\n", error.what());
  return 1;
}
