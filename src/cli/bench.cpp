// skein bench: what this machine can do, each figure beside its physical limit.
#include <fmt/format.h>

#include <memory>

#include "cli/commands.h"
#include "cli/host_options.h"
#include "cli/json_output.h"
#include "cli/network_options.h"
#include "cli/workers.h"
#include "core/parse_number.h"
#include "core/units.h"
#include "cuda/cuda.h"
#include "fabric/fabric.h"
#include "kernels/measure.h"
#include "runtime/measure_fabric.h"
#include "runtime/world_impl.h"
#include "skein/error.h"

namespace skein {
namespace {

constexpr double kMemcpyBudget = 1.25, kLinkBudget = 1.05;

std::size_t read_size(const std::string& text) {
  constexpr std::size_t kMost = std::size_t{1} << 36;
  std::size_t bytes = 0;
  try {
    bytes = parse_bytes(text);
  } catch (const ConfigError& error) {
    throw ConfigError(fmt::format("--bytes: {}", error.what()));
  }
  if (bytes < sizeof(float) || bytes > kMost)
    throw ConfigError(fmt::format("--bytes {}: expected from 4 bytes to 64 GiB", text));
  return bytes;
}

// Where the vectors are: the GPU's number, or nothing for the host. "cuda" is any: then local rank
// K has GPU K, in turns where there are fewer.
std::optional<int> read_device(const std::string& text, int local_rank) {
  if (text == "cpu") return {};
  if (const std::string reason = why_no_cuda(); text.starts_with("cuda") && !reason.empty())
    throw ConfigError(fmt::format("--device {}: {}", text, reason));
  if (text == "cuda") return local_rank % static_cast<int>(cuda_devices().size());
  int index = -1;
  if (text.starts_with("cuda:") && parse_number(std::string_view(text).substr(5), index) &&
      index >= 0)
    return index;
  throw ConfigError(fmt::format("--device {}: expected cpu, cuda or cuda:K", text));
}

struct BenchKernels {
  explicit BenchKernels(CLI::App& command) : options(command) {
    options.text("--bytes", bytes, "SIZE", "of each vector");
    options.text("--device", device, "DEVICE", "where the vectors are: cpu, cuda or cuda:K");
    options.declare_common();
  }

  int operator()() {
    options.read_config_file();
    const std::size_t size = read_size(bytes);
    const JsonOutput json(options, "bench kernels");
    const auto gpu = read_device(device, 0);
    const auto queue = gpu ? make_cuda_queue(*gpu) : nullptr;
    const auto rates = measure_kernels(size, queue.get());
    fmt::print("{:<22}{:>10}{:>14}{:>8}\n", "kernel", "GB/s", gpu ? "copy GB/s" : "memcpy GB/s",
               "ratio");
    nlohmann::json rows = nlohmann::json::array();
    for (const KernelRate& rate : rates) {
      fmt::print("{:<22}{:>10.1f}{:>14.1f}{:>8.2f}\n", rate.kernel, rate.bytes_per_second / 1e9,
                 rate.memcpy_bytes_per_second / 1e9, rate.ratio());
      rows.push_back({{"name", rate.kernel},
                      {"bytes_per_second", rate.bytes_per_second},
                      {"memcpy_bytes_per_second", rate.memcpy_bytes_per_second},
                      {"ratio", rate.ratio()}});
    }
    json.write({{"bytes", size}, {"device", device}, {"kernels", rows}}, options.seed(),
               options.config());
    return 0;
  }

  CommandOptions options;
  std::string device = "cpu";
  std::string bytes = "64MB";
};

class BenchFabric {
 public:
  explicit BenchFabric(CLI::App& command) : options_(command) {
    options_.integer("-n,--workers", workers_, 2, kMostWorkersOfAHost, "N", "how many to start");
    options_.text("--bytes", bytes_, "SIZE", "of the vector that the operations work on");
    options_.integer("--repeat", repeat_, 3, 1'000'000, "N",
                     "rounds; without it, as many of 50 as fit in 20 s");
    options_.text("--device", device_, "DEVICE",
                  "where the vector is: cpu, cuda (worker K on GPU K, in turns) or cuda:K");
    options_.group("Fabric");
    hosts_.declare(options_);
    network_.declare(options_);
    options_.group("Emulation");
    options_.bandwidth("--emulate-link", join_.emulate_bytes_per_second,
                       "give every worker a full-duplex link of this rate");
    options_.duration("--emulate-latency", join_.emulate_latency, "delay every message by this");
    options_.declare_common();
  }

  int operator()(const Invocation& invocation) {
    options_.read_config_file();
    const std::size_t size = read_size(bytes_);
    const auto placement = detect(process_environment);
    const JsonOutput json(options_, "bench fabric", placement.has_value());
    hosts_.choose_fabric(options_, network_.fabric);
    network_.check(options_);
    if (!placement) return start(invocation);
    hosts_.check_worker(options_, *placement);
    if (hosts_.given(options_)) network_.rendezvous.clear();
    join_.fabric = network_.fabric;
    join_.rendezvous = network_.rendezvous;
    const Credentials credentials = network_.credentials();
    join_.secret_file = credentials.secret;
    join_.tls_cert_file = credentials.cert;
    join_.tls_key_file = credentials.key;
    join_.tls_ca_file = credentials.ca;
    join_.encrypt = network_.encrypt == "on";
    join_.two_levels = network_.levels == "auto";
    if (placement->size < 2)
      throw ConfigError("one worker has nobody to talk to: expected at least 2");
    if (options_.given("--workers") && placement->size != workers_)
      throw ConfigError(fmt::format("--workers {}: {} has started {}; leave the option out",
                                    workers_, placement->launcher, placement->size));
    return run_as_worker(*placement, [&] { return measure(size, json, placement->local_rank); });
  }

 private:
  int start(const Invocation& invocation) {
    network_.check_start(workers_);
    hosts_.read(options_, network_.given.secret);
    const Credentials credentials = network_.credentials();
    if (hosts_.workers() == 1 ||
        (hosts_.workers() > 0 && options_.given("--workers") && workers_ != hosts_.workers()))
      throw ConfigError(fmt::format("{} workers on the hosts: expected {}", hosts_.workers(),
                                    hosts_.workers() == 1 ? "at least 2" : "as many as --workers"));
    if (hosts_.print_commands(worker_arguments(invocation, credentials), network_.rendezvous,
                              credentials))
      return 0;
    LaunchOptions launch = launch_of_self(invocation, workers_);
    launch.meeting_place = network_.between_hosts();
    hosts_.place(launch, network_.rendezvous, true);
    hand_over(credentials, launch);
    return skein::launch(launch);
  }

  int measure(std::size_t size, const JsonOutput& json, int local_rank) const {
    World world = World::join(join_);
    if (const auto gpu = read_device(device_, local_rank)) {
      world.impl().use_device(Device(Device::gpu, static_cast<std::uint8_t>(*gpu)));
      world.impl().meet_on_device();
    } else {
      world.impl().do_without_device();
    }
    Effort effort{.rounds = 50};
    if (options_.given("--repeat")) effort = {repeat_, std::chrono::hours(24)};
    const FabricReport report = measure_fabric(world, size, effort);
    if (world.rank() == 0) {
      print(report, world.size());
      json.write(figures(report, world.size(), size), options_.seed(), options_.config());
    }
    return 0;
  }

  void print(const FabricReport& report, int workers) const {
    const char* beside = report.emulated    ? "ideal link"
                         : device_ == "cpu" ? "memcpy"
                                            : "device copy";
    fmt::print("{} workers on the {} fabric, {}{}, {} rounds\n", workers, join_.fabric, bytes_,
               emulation(), report.operations.front().times.rounds);
    fmt::print("{:<16}{:>10}{:>10}{:>10}{:>10}{:>14}{:>9}\n", "operation", "min ms", "p50 ms",
               "p99 ms", "GB/s", fmt::format("{} ms", beside), "ratio");
    for (const FabricTimes& each : report.operations) {
      fmt::print("{:<16}{:>10.3f}{:>10.3f}{:>10.3f}{:>10}", each.name, each.times.min_ms,
                 each.times.p50_ms, each.times.p99_ms,
                 each.bytes_moved > 0 ? fmt::format("{:.2f}", each.bytes_per_second() / 1e9) : "-");
      if (each.limit_ms > 0)
        fmt::print("{:>14.3f}{:>7.2f} x\n", each.limit_ms, each.ratio());
      else
        fmt::print("{:>14}{:>9}\n", "-", "-");
    }
    const double budget = report.emulated ? kLinkBudget : kMemcpyBudget;
    if (report.headline() == 0 || device_ != "cpu") return;
    fmt::print("reduce-scatter + all-gather over {}: budget <= {} x: {:.2f} x {}\n", beside, budget,
               report.headline(), report.headline() <= budget ? "ok" : "MISSED");
  }

  std::string emulation() const {
    std::string out;
    if (join_.emulate_bytes_per_second > 0)
      out += fmt::format(", link {}", print_bandwidth(join_.emulate_bytes_per_second));
    if (join_.emulate_latency.count() > 0)
      out += fmt::format(", latency {}", print_duration(join_.emulate_latency));
    return out;
  }

  nlohmann::json figures(const FabricReport& report, int workers, std::size_t size) const {
    nlohmann::json rows = nlohmann::json::array();
    for (const FabricTimes& each : report.operations) {
      const bool limited = each.limit_ms > 0;
      rows.push_back({{"name", each.name},
                      {"min_ms", each.times.min_ms},
                      {"p50_ms", each.times.p50_ms},
                      {"p99_ms", each.times.p99_ms},
                      {"bytes_moved", each.bytes_moved},
                      {"bytes_per_second",
                       each.bytes_moved > 0 ? nlohmann::json(each.bytes_per_second()) : nullptr},
                      {"limit_ms", limited ? nlohmann::json(each.limit_ms) : nullptr},
                      {"ratio", limited ? nlohmann::json(each.ratio()) : nullptr}});
    }
    return {{"fabric", join_.fabric},
            {"device", device_},
            {"workers", workers},
            {"bytes", size},
            {"rounds", report.operations.front().times.rounds},
            {"emulated", report.emulated},
            {"operations", rows},
            {report.emulated ? "rs_ag_over_link" : "rs_ag_over_memcpy",
             report.headline() > 0 ? nlohmann::json(report.headline()) : nullptr}};
  }

  CommandOptions options_;
  NetworkOptions network_;
  HostOptions hosts_;
  JoinOptions join_;
  int workers_ = 2, repeat_ = 0;
  std::string bytes_ = "25MB", device_ = "cpu";
};

}  // namespace

void add_bench(CLI::App& app, Invocation& invocation) {
  CLI::App& command =
      *app.add_subcommand("bench", "measure kernels and fabrics, each beside its physical limit");
  command.set_help_flag("-h,--help", "print this and end");
  command.require_subcommand(0, 1);
  command.callback([&command] {
    if (command.get_subcommands().empty())
      throw ConfigError("of what? expected kernels or fabric; skein bench --help says more");
  });
  command.footer("Example: skein bench fabric --workers 2 --bytes 25MB");

  CLI::App& kernels = *command.add_subcommand("kernels", "vector operations, beside memcpy");
  kernels.footer(
      "Example: skein bench kernels --bytes 64MB --json kernels.json\n"
      "         skein bench kernels --device cuda --bytes 256MB");
  auto bench_kernels = std::make_shared<BenchKernels>(kernels);
  kernels.callback([bench_kernels, &invocation] {
    invocation.action = [bench_kernels] { return (*bench_kernels)(); };
  });

  CLI::App& fabric = *command.add_subcommand(
      "fabric", "collectives between worker processes, beside memcpy or an ideal link");
  fabric.footer(
      "Example: skein bench fabric --workers 4 --bytes 25MB --emulate-link 1gbit --emulate-latency "
      "1ms\n"
      "         skein bench fabric --workers 4 --device cuda");
  auto bench_fabric = std::make_shared<BenchFabric>(fabric);
  fabric.callback([bench_fabric, &invocation] {
    invocation.action = [bench_fabric, &invocation] { return (*bench_fabric)(invocation); };
  });
}

}  // namespace skein
