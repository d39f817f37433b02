// skein advise: which strategy suits a model and a cluster, by simulation.
#include <fmt/format.h>
#include <stdlib.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <memory>

#include "advise/map_svg.h"
#include "cli/advise_options.h"
#include "cli/advise_report.h"
#include "cli/commands.h"
#include "cli/json_output.h"
#include "cli/status_line.h"
#include "cli/with_torch.h"
#include "cli/workers.h"
#include "core/atomic_file.h"
#include "skein/error.h"

namespace skein {
namespace {

constexpr std::chrono::minutes kPatienceOfMeasurements(10);

// A measured profile in a file, for the reader of `skein simulate`; it goes with the object. Its
// folder is new and this user's alone: nobody else can put a link in the file's place.
class ProfileFile {
 public:
  explicit ProfileFile(const sim::Profile& profile) : folder_(fresh_folder()) {
    try {
      sim::write_profile(path(), profile);
    } catch (...) {
      remove();
      throw;
    }
  }
  ~ProfileFile() { remove(); }
  ProfileFile(const ProfileFile&) = delete;
  ProfileFile& operator=(const ProfileFile&) = delete;

  std::string path() const { return (folder_ / "profile.json").string(); }

 private:
  static std::filesystem::path fresh_folder() {
    std::string path = (std::filesystem::temp_directory_path() / "skein-advise-XXXXXX").string();
    if (::mkdtemp(path.data()) == nullptr)
      throw Error(fmt::format("cannot make the folder {}: {}", path, std::strerror(errno)));
    return path;
  }
  void remove() const {
    std::error_code ignored;
    std::filesystem::remove_all(folder_, ignored);
  }

  std::filesystem::path folder_;
};

class AdviseCommand {
 public:
  explicit AdviseCommand(CLI::App& command) : reader_(command) {}

  int operator()(const Invocation& invocation) {
    reader_.read();
    const auto placement = detect(process_environment);
    if (reader_.measures_model() && (placement || !reader_.on_hosts())) with_torch();
    const JsonOutput json(reader_.options(), "advise",
                          placement.has_value() || !reader_.on_hosts());
    if (!reader_.on_hosts()) {
      if (placement)
        throw ConfigError(fmt::format(
            "{} has started this process as one of several: start skein advise alone, with --hosts "
            "to measure machines",
            placement->launcher));
      return advise_described(json);
    }
    reader_.hosts().choose_fabric(reader_.options(), reader_.network().fabric);
    reader_.network().check(reader_.options());
    if (!placement) return start_workers(invocation);
    reader_.hosts().check_worker(reader_.options(), *placement);
    return run_as_worker(*placement, [&] { return advise_measured(json, *placement); });
  }

 private:
  int start_workers(const Invocation& invocation) {
    HostOptions& hosts = reader_.hosts();
    NetworkOptions& network = reader_.network();
    hosts.read(reader_.options(), network.given.secret);
    if (hosts.workers() < 2)
      throw ConfigError("--hosts: one worker has nobody to wait for; expected at least 2 workers");
    const Credentials credentials = network.credentials();
    if (hosts.print_commands(worker_arguments(invocation, credentials), network.rendezvous,
                             credentials))
      return 0;
    LaunchOptions launch =
        launch_of_self(invocation, hosts.workers(), reader_.what_is_measured().job.threads);
    launch.meeting_place = true;
    hosts.place(launch, network.rendezvous, true);
    hand_over(credentials, launch);
    return skein::launch(launch);
  }

  // Rank 0 goes on alone when all have measured.
  int advise_measured(const JsonOutput& json, const Placement& placement) {
    std::optional<MeasuredCluster> measured;
    {
      const Credentials credentials = reader_.network().credentials();
      JoinOptions join;
      join.fabric = reader_.network().fabric;
      join.patience = kPatienceOfMeasurements;
      join.secret_file = credentials.secret;
      join.tls_cert_file = credentials.cert;
      join.tls_key_file = credentials.key;
      join.tls_ca_file = credentials.ca;
      join.encrypt = reader_.network().encrypt == "on";
      join.two_levels = reader_.network().levels == "auto";
      World world = World::join(join);
      const auto most = world.sum(
          {placement.local_size == placement.size / hosts_of(world, placement) ? 0.0 : 1.0});
      if (most.front() > 0)
        throw ConfigError(
            "--hosts: hosts with different numbers of workers cannot be simulated; expected "
            "equally "
            "many on each");
      measured = measure_cluster(world, placement.local_size,
                                 reader_.measures_model() ? &reader_.what_is_measured() : nullptr);
    }
    if (placement.rank != 0) return 0;
    if (!reader_.measures_model()) return report(json, reader_.profile(), measured);
    return report_measured_model(json, measured->profile, measured);
  }

  static int hosts_of(World& world, const Placement& placement) {
    const bool first = placement.local_rank == 0;
    return static_cast<int>(world.sum({first ? 1.0 : 0.0}).front());
  }

  int advise_described(const JsonOutput& json) {
    if (!reader_.measures_model()) return report(json, reader_.profile(), {});
    // What would be refused is refused before anything is measured.
    reader_.cluster(sim::builtin_profile_names().front(), {});
    sim::Profile profile;
    {
      World world = World::join({.patience = kPatienceOfMeasurements});
      profile = measure_profile(reader_.what_is_measured(), world);
    }
    return report_measured_model(json, profile, {});
  }

  int report_measured_model(const JsonOutput& json, const sim::Profile& profile,
                            const std::optional<MeasuredCluster>& measured) {
    if (!reader_.profile_file().empty()) sim::write_profile(reader_.profile_file(), profile);
    const ProfileFile file(profile);
    return report(json, file.path(), measured);
  }

  int report(const JsonOutput& json, const std::string& profile,
             const std::optional<MeasuredCluster>& measured) {
    const sim::Scenario cluster = reader_.cluster(profile, measured);
    StatusLine status(reader_.options().quiet());
    const auto tell = [&](const std::string& what) { status.say("simulating " + what); };
    const advise::Effort effort = reader_.effort(cluster);
    const advise::Advice advice = advise::make_advice(cluster, effort, tell);
    AdviceReport report{.advice = advice,
                        .effort = effort,
                        .command = {},
                        .rehearsal = {},
                        .note = {},
                        .measured = measured.has_value(),
                        .links = measured ? measured->links : std::vector<MeasuredLink>(),
                        .map = {}};
    const std::vector<std::string> options = reader_.train_options(cluster);
    const advise::Setup& setup = advice.recommended().setup;
    report.command = train_command(options, setup);
    if (std::ranges::count(options, "--model") == 0)
      report.note = fmt::format(
          "skein train has no model {}: what counts are the options from --strategy on, or in your "
          "own program the strategy's recipe.",
          cluster.profile.name);
    if (!measured && report.command.find("--emulate-") == std::string::npos) {
      const auto emulation = rehearsal_options(cluster);
      std::vector<std::string> all = options;
      all.insert(all.end(), emulation.begin(), emulation.end());
      if (!emulation.empty()) report.rehearsal = train_command(all, setup);
      if (report.note.empty())
        report.note =
            "On several hosts, say --hosts A,B,C in place of --workers, or use your launcher.";
    }
    if (!reader_.map_file().empty()) {
      report.map = advise::make_map(advice, effort, tell);
      write_whole(reader_.map_file(), advise::map_svg(*report.map, advice));
    }
    status.clear();
    fmt::print("{}", report.text());
    if (report.map) fmt::print("\n{}\n", advise::map_text(*report.map));
    json.write(report.json(), reader_.options().seed(), reader_.options().config());
    return 0;
  }

  AdviseOptionReader reader_;
};

}  // namespace

void add_advise(CLI::App& app, Invocation& invocation) {
  CLI::App& command = *app.add_subcommand(
      "advise", "say which strategy suits a model and a cluster, by simulation");
  command.footer(
      "Examples:\n"
      "  skein advise --profile resnet50 --workers 4 --network 1gbe --emulate-speeds 1,1,2,4\n"
      "  skein advise --model cnn --batch 32 --config cluster.toml --map map.svg\n"
      "  skein advise --model resnet18 --hosts a,b,c");
  auto advise = std::make_shared<AdviseCommand>(command);
  command.callback([advise, &invocation] {
    invocation.action = [advise, &invocation] { return (*advise)(invocation); };
  });
}

}  // namespace skein
