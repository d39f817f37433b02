// skein run: any program as the workers of a run.
#include <fmt/format.h>

#include <chrono>
#include <memory>

#include "cli/commands.h"
#include "cli/host_options.h"
#include "cli/json_output.h"
#include "cli/network_options.h"
#include "core/clock.h"
#include "fabric/fabric.h"
#include "launch/launcher.h"
#include "runtime/fabrics.h"
#include "skein/error.h"

namespace skein {
namespace {

struct RunCommand {
  explicit RunCommand(CLI::App& command) : command(command), options(command) {
    options.integer("-n,--workers", launch.workers, 1, kMostWorkersOfAHost, "N",
                    "how many to start");
    hosts.declare(options);
    options.text("--fabric", fabric, "NAME",
                 "what World::join() uses where the program names none: " + describe_fabrics());
    options.text("--rendezvous", rendezvous, "HOST[:PORT]",
                 "--hosts: where rank 0 is (else the first host's name, and a port that is free)");
    declare_certificates(options, given);
    options.text("--log-dir", launch.log_dir, "DIR",
                 "keep the output of ranks 1 and up in DIR/rank-K.log");
    options.flag("--show-all", launch.show_all,
                 "print the output of all ranks, each line with [rank] in front");
    options.flag("--go-on", launch.go_on,
                 "do not end the others when one dies or fails: for programs that survive it");
    options.declare_common();
  }

  void find_program(const Invocation& invocation) {
    const auto before_dashes = command.remaining();
    launch.argv = before_dashes;
    launch.argv.insert(launch.argv.end(), invocation.program.begin(), invocation.program.end());
    if (!before_dashes.empty() && before_dashes.front().starts_with("-"))
      throw CLI::ExtrasError(command.get_name(), before_dashes);
    if (!before_dashes.empty() && !invocation.program.empty())
      throw ConfigError(fmt::format("unexpected '{}' before --", before_dashes.front()));
    if (launch.argv.empty())
      throw ConfigError("which program? Usage: skein run -n 4 -- PROGRAM ARGUMENTS...");
  }

  void choose_fabric() {
    if (!options.given("--fabric")) return;
    try {
      check_fabric(fabric);
    } catch (const ConfigError& error) {
      throw ConfigError(fmt::format("--{}", error.what()));
    }
    if (fabric == "mpi")
      throw ConfigError("--fabric mpi: MPI's own launcher starts the workers; expected mpirun");
    hosts.choose_fabric(options, fabric);
    launch.extra_env["SKEIN_FABRIC"] = fabric;
  }

  // What is typed on a host.
  std::vector<std::string> by_hand(const Credentials& credentials) const {
    std::vector<std::string> out{"SKEIN_SECRET_FILE=run.secret"};
    if (credentials.certificates())
      out = {"SKEIN_TLS_CERT=" + credentials.cert, "SKEIN_TLS_KEY=" + credentials.key,
             "SKEIN_TLS_CA=" + credentials.ca};
    out.insert(out.end(), launch.argv.begin(), launch.argv.end());
    return out;
  }

  int operator()(const Invocation& invocation) {
    find_program(invocation);
    options.read_config_file();
    const JsonOutput json(options, "run");
    launch.meeting_place = launch.workers > 1;  // the program may want to talk over TCP
    hosts.read(options, "");
    if (options.given("--rendezvous") && hosts.workers() == 0)
      throw ConfigError("--rendezvous: there are no hosts; expected --hosts too");
    if (hosts.workers() > 0 && options.given("--workers") && launch.workers != hosts.workers())
      throw ConfigError(fmt::format("--workers {}: the hosts have {}; leave the option out",
                                    launch.workers, hosts.workers()));
    choose_fabric();
    const Credentials credentials = find_credentials(given, process_environment);
    if (hosts.print_commands(by_hand(credentials), rendezvous, credentials)) return 0;
    hosts.place(launch, rendezvous, false);
    hand_over(credentials, launch);
    launch.extra_env["SKEIN_SEED"] = std::to_string(options.seed());
    const SteadyClock clock;
    const Time begin = clock.now();
    const int code = skein::launch(launch);
    json.write({{"workers", launch.workers},
                {"program", launch.argv},
                {"exit_code", code},
                {"seconds", seconds(clock.now() - begin)}},
               options.seed(), options.config());
    return code;
  }

  CLI::App& command;
  LaunchOptions launch;
  HostOptions hosts;
  std::string rendezvous, fabric = "auto";
  Credentials given;
  CommandOptions options;
};

}  // namespace

void add_run(CLI::App& app, Invocation& invocation) {
  CLI::App& command = *app.add_subcommand("run", "start N copies of any program as workers");
  command.prefix_command();
  command.footer(
      "skein run [OPTIONS] -- PROGRAM [ARGUMENTS...]\n\n"
      "Workers find their place in SKEIN_RANK, SKEIN_SIZE and SKEIN_RUN, and the seed in "
      "SKEIN_SEED.\n"
      "World::join() joins them: through memory on one host, over tcp between hosts.\n"
      "Rank 0 prints here. When one worker fails, the others are ended and the first failure is\n"
      "shown (but see --go-on).\n\n"
      "Example: skein run -n 4 -- ./train_your_model --epochs 3\n"
      "         skein run --hosts a,b:4 -- ./train_your_model --epochs 3");
  auto run = std::make_shared<RunCommand>(command);
  command.callback([run, &invocation] {
    invocation.action = [run, &invocation] { return (*run)(invocation); };
  });
}

}  // namespace skein
