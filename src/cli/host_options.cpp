#include "cli/host_options.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>

#include "core/parse_number.h"
#include "fabric/fabric.h"
#include "launch/shell.h"
#include "skein/error.h"

namespace skein {
namespace {

// Without a prompt, which nobody could answer; a host that has gone is noticed after 15 s.
constexpr const char* kSsh = "ssh -o BatchMode=yes -o ConnectTimeout=10 -o ServerAliveInterval=5";
constexpr int kUsualPort = 29500;

std::string own_program_path() { return std::filesystem::read_symlink("/proc/self/exe").string(); }

void check_rendezvous(const std::string& text) {
  int port = 1;
  const std::string number = has_port(text) ? text.substr(text.rfind(':') + 1) : "1";
  const std::string host = has_port(text) ? text.substr(0, text.rfind(':')) : text;
  if (host.empty() || host.find_first_of(" @/") != std::string::npos ||
      !parse_number(number, port) || port < 1 || port > 65535)
    throw ConfigError(fmt::format(
        "--rendezvous {}: expected HOST or HOST:PORT, by which all hosts reach the first", text));
}

bool is_variable(const std::string& name) {
  return !name.empty() && !name.starts_with("SKEIN_") && name.find('=') == std::string::npos;
}

}  // namespace

void HostOptions::declare(CommandOptions& options) {
  options.text("--hosts", list_, "A,B:4,C",
               "start workers over ssh: one on A, four on B, one on C; rank 0 is on the first");
  options.text("--hostfile", file_, "FILE", "the same from a file: HOST [WORKERS] on each line");
  options.text("--ssh", ssh_, "COMMAND",
               "--hosts: what leads to a host (else SKEIN_SSH, else ssh without questions)");
  options.text("--remote-skein", remote_skein_, "PATH",
               "--hosts: Skein on the hosts (else where it is here)");
  options.repeated("--env", variables_, "NAME", "--hosts: give workers this variable");
  options.flag("--print-commands", print_commands_,
               "--hosts: start nothing; print what to type on each host");
}

bool HostOptions::given(const CommandOptions& options) const {
  return options.given("--hosts") || options.given("--hostfile");
}

void HostOptions::choose_fabric(const CommandOptions& options, std::string& fabric) const {
  if (!given(options)) return;
  if (!options.given("--fabric")) fabric = "tcp";
  if (fabric == "local" || fabric == "mpi")
    throw ConfigError(
        fmt::format("--fabric {} joins workers {}: expected --fabric tcp with --hosts", fabric,
                    fabric == "local" ? "of one host" : "that mpirun has started"));
}

void HostOptions::read(const CommandOptions& options, const std::string& secret) {
  if (!given(options)) {
    for (const char* name : {"--ssh", "--remote-skein", "--env", "--print-commands"})
      if (options.given(name))
        throw ConfigError(fmt::format("{}: there are no hosts; expected --hosts too", name));
    return;
  }
  if (options.given("--hosts") && options.given("--hostfile"))
    throw ConfigError(
        fmt::format("--hosts {} and --hostfile {}: expected one of the two", list_, file_));
  if (!secret.empty() && !print_commands_)
    throw ConfigError(fmt::format(
        "--secret {}: with --hosts the launcher makes a secret; leave the option out", secret));
  const bool listed = options.given("--hosts");
  try {
    hosts_ = listed ? parse_hosts(list_, kMostWorkersOfAHost)
                    : read_host_file(file_, kMostWorkersOfAHost);
  } catch (const ConfigError& error) {
    throw ConfigError(fmt::format("{}: {}", listed ? "--hosts" : "--hostfile", error.what()));
  }
  for (const std::string& name : variables_) {
    if (!is_variable(name))
      throw ConfigError(
          fmt::format("--env {}: expected the name of a variable, not one of Skein's own", name));
    if (std::getenv(name.c_str()) == nullptr)
      throw ConfigError(fmt::format("--env {}: there is no such variable here", name));
  }
  const char* from_environment = std::getenv("SKEIN_SSH");
  if (ssh_.empty() && from_environment != nullptr) ssh_ = from_environment;
  ssh_given_ = !words_of(ssh_).empty();
  if (!ssh_given_) ssh_ = kSsh;
  if (remote_skein_.empty()) remote_skein_ = own_program_path();
}

void HostOptions::check_worker(const CommandOptions& options, const Placement& placement) const {
  if (given(options) && placement.launcher != "skein")
    throw ConfigError(fmt::format("--hosts: {} has started this worker; leave the option out",
                                  placement.launcher));
}

void HostOptions::place(LaunchOptions& launch, const std::string& rendezvous,
                        bool own_program) const {
  if (hosts_.empty()) return;
  if (!rendezvous.empty()) check_rendezvous(rendezvous);
  launch.workers = workers();
  launch.settle = std::chrono::seconds(1);  // news of other hosts takes longer
  for (const std::string& name : variables_) launch.extra_env[name] = std::getenv(name.c_str());
  RemoteOptions& remote = launch.remote.emplace();
  remote.hosts = hosts_;
  remote.ssh = words_of(ssh_);
  remote.ssh_to_this_host = ssh_given_;
  remote.program = remote_skein_;
  remote.own_program = own_program;
  remote.rendezvous = rendezvous;
  if (rendezvous.starts_with("[") && rendezvous.ends_with("]"))  // a number of IPv6, no port
    remote.rendezvous = rendezvous.substr(1, rendezvous.size() - 2);
}

bool HostOptions::print_commands(const std::vector<std::string>& words,
                                 const std::string& rendezvous,
                                 const Credentials& credentials) const {
  if (!print_commands_) return false;
  if (!rendezvous.empty()) check_rendezvous(rendezvous);
  std::string address = rendezvous.empty() ? hosts_[0].address() : rendezvous;
  std::string port = std::to_string(kUsualPort);
  if (has_port(address)) {
    port = address.substr(address.rfind(':') + 1);
    address.resize(address.rfind(':'));
  }
  if (address.starts_with("[")) address = address.substr(1, address.size() - 2);
  std::string command;
  for (const std::string& word : words) command += " " + shell_quoted(word);
  for (const auto& name : variables_)
    command = fmt::format(" {}={}", name, shell_quoted(std::getenv(name.c_str()))) + command;
  if (credentials.certificates())
    fmt::print("# Each host needs a certificate in {}, its key in {}, and the authority's in {}.\n",
               credentials.cert, credentials.key, credentials.ca);
  else
    fmt::print(
        "# All hosts need the secret of the run. Make it once, and copy it to each of them:\n"
        "#   (umask 077; head -c 32 /dev/urandom > run.secret)\n");
  int rank = 0;
  for (const Host& host : hosts_) {
    fmt::print("# on {}\n", host.name);
    for (int local = 0; local < host.workers; ++local)
      fmt::print(
          "RANK={} WORLD_SIZE={} LOCAL_RANK={} LOCAL_WORLD_SIZE={} MASTER_ADDR={} "
          "MASTER_PORT={}{}\n",
          rank++, workers(), local, host.workers, address, port, command);
  }
  return true;
}

std::vector<std::string> without_options(const std::vector<std::string>& arguments,
                                         const std::vector<std::string>& named,
                                         const std::vector<std::string>& flags) {
  const auto in = [](const std::vector<std::string>& names, const std::string& word) {
    return std::find(names.begin(), names.end(), word) != names.end();
  };
  std::vector<std::string> out;
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    const std::string& word = arguments[i];
    const std::size_t equals = word.find('=');
    if (in(named, word))
      ++i;  // and its value
    else if (!in(flags, word) &&
             (equals == std::string::npos || !in(named, word.substr(0, equals))))
      out.push_back(word);
  }
  return out;
}

std::vector<std::string> worker_arguments(const Invocation& invocation,
                                          const Credentials& credentials) {
  std::vector<std::string> out = without_options(
      invocation.arguments,
      {"--hosts", "--hostfile", "--ssh", "--remote-skein", "--env", "--rendezvous", "--secret",
       "--tls-cert", "--tls-key", "--tls-ca", "--workers", "-n", "--restarts", "--min-workers"},
      {"--print-commands"});
  out.insert(out.begin(), "skein");
  if (std::ranges::none_of(out, [](const auto& word) { return word.starts_with("--fabric"); }))
    out.insert(out.end(), {"--fabric", "tcp"});
  if (credentials.certificates())
    out.insert(out.end(), {"--tls-cert", credentials.cert, "--tls-key", credentials.key, "--tls-ca",
                           credentials.ca});
  else
    out.insert(out.end(),
               {"--secret", credentials.secret.empty() ? "run.secret" : credentials.secret});
  return out;
}

}  // namespace skein
