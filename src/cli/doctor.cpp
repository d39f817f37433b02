// skein doctor: what is built in, what this machine has, and what is missing.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "cli/commands.h"
#include "cli/host.h"
#include "cli/json_output.h"
#include "cli/with_torch.h"
#include "core/units.h"
#include "fabric/mpi/make_mpi.h"
#include "launch/environment.h"
#include "page/server.h"
#include "runtime/fabrics.h"
#include "skein/error.h"
#include "strategy/registry.h"
#include "train/gpus.h"
#include "train/version.h"

namespace skein {
namespace {

// Something that is missing or slow, and what to do about it.
struct Advice {
  std::string problem, remedy;
};

struct Diagnosis {
  HostFacts host;
  std::vector<std::string> strategies = strategy_names();
  std::vector<std::string> fabrics = fabric_names();
  std::vector<std::string> absent_fabrics = absent_fabric_names();
  std::string mpi = mpi_library();
  std::string torch = torch_version();
  std::string no_page = why_no_page();
  Gpus gpus = find_gpus();
  bool gpu_here = std::filesystem::exists("/dev/nvidia0");  // whether or not it can be used
  std::string launcher;                                     // in words
  std::vector<Advice> advice;
};

std::string describe_launcher(std::vector<Advice>& advice) {
  try {
    const auto placement = detect(process_environment);
    if (!placement) return "none: alone, train starts its own workers";
    return fmt::format("{}: rank {} of {}, {} of {} on this host", placement->launcher,
                       placement->rank, placement->size, placement->local_rank,
                       placement->local_size);
  } catch (const ConfigError& error) {
    advice.push_back({error.what(), "unset these variables, or start through the launcher"});
    return "unclear";
  }
}

// PyTorch's own builds of LibTorch export a std::filesystem of another compiler.
bool safe_filesystem(const HostFacts& host) {
  return host.filesystem_path.find("libtorch") == std::string::npos;
}

Diagnosis diagnose() {
  Diagnosis out;
  out.host = inspect_host();
  out.launcher = describe_launcher(out.advice);
  if (out.host.blas == "reference BLAS")
    out.advice.push_back({"torch uses the reference BLAS, which is many times slower than others",
                          "apt install libopenblas0-pthread"});
  const auto need = [&](bool there, const char* what, const char* since) {
    if (!there)
      out.advice.push_back(
          {fmt::format("the kernel does not offer {}: workers cannot run", what),
           fmt::format("Linux {} or newer, and a container that allows it", since)});
  };
  need(out.host.memfd, "memfd", "3.17");
  need(out.host.futex, "futex", "2.6");
  need(out.host.pidfd, "pidfd", "5.3");
  if (!safe_filesystem(out.host))
    out.advice.push_back(
        {fmt::format("std::filesystem comes from {}, whose layout is not the compiler's: "
                     "the program may crash",
                     out.host.filesystem_path),
         "name libstdc++ before LibTorch when linking, as CMake does for skein::torch; until "
         "then LD_PRELOAD=libstdc++.so.6"});
  if (out.gpu_here && out.gpus.count == 0)
    out.advice.push_back(
        {fmt::format("this host has a GPU that cannot be used: {}", out.gpus.why_none),
         "docs/gpus.md says what a build with CUDA needs"});
  if (out.host.huge_pages == "never")
    out.advice.push_back({"transparent huge pages are off: large copies take longer",
                          "echo madvise > /sys/kernel/mm/transparent_hugepage/enabled"});
  return out;
}

void print_gpus(const Diagnosis& diagnosis) {
  const Gpus& gpus = diagnosis.gpus;
  fmt::print("CUDA        {}\n",
             gpus.why_none.empty() ? "can be used" : "cannot be used: " + gpus.why_none);
  for (std::size_t i = 0; i < gpus.devices.size(); ++i)
    fmt::print("cuda:{:<7}{}, {}, {} free\n", i, gpus.devices[i].name,
               print_bytes(static_cast<double>(gpus.devices[i].memory_bytes)),
               print_bytes(static_cast<double>(gpus.devices[i].free_bytes)));
}

void print(const Diagnosis& diagnosis) {
  const HostFacts& host = diagnosis.host;
  const auto yes = [](bool value) { return value ? "yes" : "no"; };
  fmt::print("skein       {}\n", SKEIN_VERSION);
  fmt::print("torch       {}, {} CUDA{}\n", diagnosis.torch,
             diagnosis.gpus.in_torch ? "with" : "without",
             host.torch_path.empty() ? "" : fmt::format(" ({})", host.torch_path));
  fmt::print("filesystem  {} ({})\n", safe_filesystem(host) ? "safe" : "unsafe",
             host.filesystem_path);
  fmt::print("strategies  {}\n", fmt::join(diagnosis.strategies, ", "));
  fmt::print("fabrics     {}{}\n", fmt::join(diagnosis.fabrics, ", "),
             diagnosis.absent_fabrics.empty()
                 ? ""
                 : fmt::format(" (not here: {})", fmt::join(diagnosis.absent_fabrics, ", ")));
  fmt::print("MPI         {}\n",
             diagnosis.mpi.empty() ? "not in this build: " + why_no_mpi() : diagnosis.mpi);
  fmt::print("live page   {}\n", diagnosis.no_page.empty() ? "yes" : "no: " + diagnosis.no_page);
  fmt::print("cores       {}\n", host.cores);
  fmt::print("memory      {}, {} available\n", print_bytes(static_cast<double>(host.memory_bytes)),
             print_bytes(static_cast<double>(host.available_bytes)));
  fmt::print("BLAS        {}{}\n", host.blas,
             host.blas_path.empty() ? "" : fmt::format(" ({})", host.blas_path));
  print_gpus(diagnosis);
  fmt::print("kernel      memfd {}, futex {}, pidfd {}, huge pages {}\n", yes(host.memfd),
             yes(host.futex), yes(host.pidfd), host.huge_pages);
  fmt::print("launcher    {}\n", diagnosis.launcher);
  for (const Advice& advice : diagnosis.advice)
    fmt::print("warning     {}\n            to get it: {}\n", advice.problem, advice.remedy);
  if (diagnosis.advice.empty()) fmt::print("nothing is missing\n");
}

nlohmann::json json_of(const StrategyInfo& strategy) {
  nlohmann::json options = nlohmann::json::array();
  for (const OptionInfo& each : strategy.options)
    options.push_back({{"name", each.name},
                       {"default", each.fallback},
                       {"allowed", each.allowed},
                       {"what", each.what}});
  const StrategyTraits& traits = strategy.traits;
  return {{"waits_for", traits.waits_for},
          {"updates", traits.updates},
          {"lockstep", traits.lockstep},
          {"synchronous", traits.synchronous},
          {"equal_replicas", traits.equal_replicas},
          {"repeats", traits.repeats},
          {"survives_losses", traits.survives_losses},
          {"needs_graph", traits.needs_graph},
          {"planes", traits.planes},
          {"options", options}};
}

nlohmann::json figures(const Diagnosis& diagnosis) {
  const HostFacts& host = diagnosis.host;
  nlohmann::json advice = nlohmann::json::array();
  for (const Advice& each : diagnosis.advice)
    advice.push_back({{"problem", each.problem}, {"remedy", each.remedy}});
  nlohmann::json gpus = nlohmann::json::array();
  for (const Gpu& each : diagnosis.gpus.devices)
    gpus.push_back({{"name", each.name},
                    {"memory_bytes", each.memory_bytes},
                    {"free_bytes", each.free_bytes}});
  nlohmann::json described = nlohmann::json::object();
  for (const StrategyInfo& each : strategies()) described[each.name] = json_of(each);
  return {{"torch", diagnosis.torch},
          {"torch_has_cuda", diagnosis.gpus.in_torch},
          {"gpus", gpus},
          {"why_no_gpu", diagnosis.gpus.why_none},
          {"torch_path", host.torch_path},
          {"filesystem_path", host.filesystem_path},
          {"filesystem_safe", safe_filesystem(host)},
          {"strategies", diagnosis.strategies},
          {"strategy", described},
          {"fabrics", diagnosis.fabrics},
          {"absent_fabrics", diagnosis.absent_fabrics},
          {"mpi", diagnosis.mpi},
          {"why_no_page", diagnosis.no_page},
          {"cores", host.cores},
          {"memory_bytes", host.memory_bytes},
          {"available_bytes", host.available_bytes},
          {"blas", host.blas},
          {"blas_path", host.blas_path},
          {"memfd", host.memfd},
          {"futex", host.futex},
          {"pidfd", host.pidfd},
          {"huge_pages", host.huge_pages},
          {"launcher", diagnosis.launcher},
          {"warnings", advice}};
}

}  // namespace

void add_doctor(CLI::App& app, Invocation& invocation) {
  CLI::App& command =
      *app.add_subcommand("doctor", "say what is built in, what is seen here and what is missing");
  command.footer("Example: skein doctor --json doctor.json");
  auto options = std::make_shared<CommandOptions>(command);
  options->declare_common();
  command.callback([options, &invocation] {
    invocation.action = [options] {
      with_torch();
      options->read_config_file();
      const JsonOutput json(*options, "doctor");
      const Diagnosis diagnosis = diagnose();
      if (!options->quiet()) print(diagnosis);
      json.write(figures(diagnosis), options->seed(), options->config());
      return 0;
    };
  });
}

}  // namespace skein
