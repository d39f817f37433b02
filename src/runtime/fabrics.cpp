#include "runtime/fabrics.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "core/descriptor_limit.h"
#include "core/parse_number.h"
#include "core/units.h"
#include "fabric/alone.h"
#include "fabric/local/local_fabric.h"
#include "fabric/mpi/make_mpi.h"
#include "fabric/nccl/library.h"
#include "fabric/nccl/nccl_fabric.h"
#include "fabric/tcp/tcp.h"
#include "runtime/credentials.h"
#include "runtime/own_secret.h"
#include "runtime/shared_hosts.h"
#include "runtime/with_nccl.h"
#include "skein/error.h"

namespace skein {
namespace {

// What a worker has open beside its connections: a listening socket, data, logs, checkpoints.
constexpr std::int64_t kMoreDescriptors = 32;

std::unique_ptr<Fabric> make_local(Loop& loop, const JoinOptions& options,
                                   const Placement& placement) {
  if (placement.local_size != placement.size)
    throw ConfigError(fmt::format(
        "the local fabric joins workers of one host, but only {} of the {} workers that {} "
        "started are here: expected fabric auto or tcp (--fabric, JoinOptions::fabric, "
        "SKEIN_FABRIC)",
        placement.local_size, placement.size, placement.launcher));
  // Of each worker its memory, its process and what it sleeps on; at rank 0 its socket, too.
  need_descriptors(
      std::int64_t{4} * placement.size + kMoreDescriptors,
      fmt::format("rank {} of {} workers on one host", placement.rank, placement.size));
  return std::make_unique<LocalFabric>(
      loop, LocalOptions{placement.run_id,
                         placement.rank,
                         placement.size,
                         options.patience,
                         {options.emulate_bytes_per_second, options.emulate_latency}});
}

// What the option says, or else the launcher.
std::string first_of(const std::string& option, const std::string& otherwise) {
  return option.empty() ? otherwise : option;
}

// For experts, and for networks where what is found while running is not the best.
int most_streams(int otherwise) {
  const char* text = process_environment("SKEIN_TCP_STREAMS");
  int count = otherwise;
  if (text && (!parse_number(text, count) || count < 1 || count > kMostTcpStreams))
    throw ConfigError(fmt::format("SKEIN_TCP_STREAMS is '{}': expected a number from 1 to {}", text,
                                  kMostTcpStreams));
  return count;
}

void check_not_emulated(const JoinOptions& options) {
  if (options.emulate_bytes_per_second > 0 || options.emulate_latency.count() > 0)
    throw ConfigError(
        fmt::format("the {} fabric has real links: emulated ones are for the local fabric; "
                    "expected no --emulate-link and no --emulate-latency",
                    options.fabric));
}

std::unique_ptr<Fabric> make_tcp(Loop& loop, const JoinOptions& options,
                                 const Placement& placement) {
  check_not_emulated(options);
  TcpOptions tcp;
  tcp.rank = placement.rank;
  tcp.size = placement.size;
  tcp.rendezvous = first_of(options.rendezvous, placement.rendezvous);
  if (tcp.rendezvous.empty())
    throw ConfigError(fmt::format(
        "the tcp fabric needs an address of rank 0, which {} does not say: expected --rendezvous "
        "HOST:PORT (JoinOptions::rendezvous), the same for all workers; or MASTER_ADDR and "
        "MASTER_PORT",
        placement.launcher));
  // A connection with each, and the memory of those that share its host.
  need_descriptors(placement.size + std::int64_t{4} * placement.local_size + kMoreDescriptors,
                   fmt::format("rank {} of {} workers over tcp", placement.rank, placement.size));
  const Credentials shown = find_credentials(
      {options.secret_file, options.tls_cert_file, options.tls_key_file, options.tls_ca_file},
      process_environment);
  tcp.secret_file = shown.secret;
  if (shown.secret.empty() && !shown.certificates() && placement.launcher == "slurm") {
    tcp.secret_file = own_secret_file(process_environment);
    tcp.run = placement.run_id;
  }
  if (tcp.secret_file.empty() && !shown.certificates())
    throw ConfigError(
        "the tcp fabric needs a secret that all workers of the run know: expected --secret FILE or "
        "SKEIN_SECRET_FILE; to make one: (umask 077; head -c 32 /dev/urandom > FILE). Or "
        "certificates: --tls-cert, --tls-key and --tls-ca");
  tcp.tls_cert_file = shown.cert;
  tcp.tls_key_file = shown.key;
  tcp.tls_ca_file = shown.ca;
  tcp.encrypt = options.encrypt;
  tcp.join_timeout = options.patience;
  tcp.most_streams = most_streams(tcp.most_streams);
  tcp.say = [](const std::string& text) { fmt::print(stderr, "skein: {}\n", text); };
  auto fabric = make_tcp_fabric(loop, tcp);
  return with_shared_hosts(std::move(fabric), options.two_levels, options.patience);
}

// For experts, and for hosts where a thousand looks a second at MPI are too many or too few.
Duration longest_nap(Duration otherwise) {
  const char* text = process_environment("SKEIN_MPI_POLL");
  if (!text || *text == '\0') return otherwise;
  constexpr Duration kLeast = std::chrono::microseconds(1), kMost = std::chrono::seconds(1);
  Duration nap{};
  try {
    nap = parse_duration(text);
  } catch (const ConfigError& error) {
    throw ConfigError(fmt::format("SKEIN_MPI_POLL: {}", error.what()));
  }
  if (nap < kLeast || nap > kMost)
    throw ConfigError(fmt::format("SKEIN_MPI_POLL is '{}': expected from 1us to 1s", text));
  return nap;
}

std::unique_ptr<Fabric> make_mpi(Loop& loop, const JoinOptions& options,
                                 const Placement& placement) {
  check_not_emulated(options);
  MpiOptions mpi;
  mpi.placement = placement;
  mpi.patience = options.patience;
  mpi.longest_nap = longest_nap(mpi.longest_nap);
  return make_mpi_fabric(loop, mpi);
}

bool on_one_host(const Placement& placement) { return placement.local_size == placement.size; }

std::unique_ptr<Fabric> make_nccl(Loop& loop, const JoinOptions& options,
                                  const Placement& placement) {
  check_not_emulated(options);
  auto control = on_one_host(placement) ? make_local(loop, options, placement)
                                        : make_tcp(loop, options, placement);
  return std::make_unique<NcclFabric>(std::move(control), *nccl::library().api, true);
}

std::unique_ptr<Fabric> make_auto(Loop& loop, const JoinOptions& options,
                                  const Placement& placement) {
  if (on_one_host(placement)) return make_local(loop, options, placement);
  return with_nccl_where_all_have_it(make_tcp(loop, options, placement), options.patience);
}

}  // namespace

const std::vector<FabricKind>& fabric_kinds() {
  static const std::vector<FabricKind> kinds{
      {"local", "processes of one host", "", make_local},
      {"tcp", "any hosts", why_no_tcp(), make_tcp},
      {"mpi", "what mpirun has started", why_no_mpi(), make_mpi},
      {"nccl", "GPUs", nccl::library().missing, make_nccl},
      {"auto", "local, nccl or tcp", "", make_auto}};
  return kinds;
}

namespace {

std::vector<std::string> names(bool here) {
  std::vector<std::string> out;
  for (const FabricKind& kind : fabric_kinds())
    if (kind.missing.empty() == here) out.push_back(kind.name);
  return out;
}

}  // namespace

std::vector<std::string> fabric_names() { return names(true); }
std::vector<std::string> absent_fabric_names() { return names(false); }

std::string describe_fabrics() {
  std::vector<std::string> out;
  for (const FabricKind& kind : fabric_kinds())
    if (kind.missing.empty()) out.push_back(fmt::format("{} ({})", kind.name, kind.joins));
  return fmt::format("{}", fmt::join(out, ", "));
}

namespace {

const FabricKind& find_fabric(const std::string& name) {
  std::string trouble = "there is no such fabric";
  for (const FabricKind& kind : fabric_kinds()) {
    if (kind.name != name) continue;
    if (kind.missing.empty()) return kind;
    trouble = fmt::format("this fabric is not here ({})", kind.missing);
  }
  throw ConfigError(
      fmt::format("fabric {}: {}; expected {}", name, trouble, fmt::join(fabric_names(), " or ")));
}

}  // namespace

void check_fabric(const std::string& name) { find_fabric(name); }

namespace {

// What the options name, or where they leave it to the launcher, what that says.
const FabricKind& chosen_fabric(const JoinOptions& options) {
  const char* said = process_environment("SKEIN_FABRIC");
  if (options.fabric != "auto" || said == nullptr || *said == '\0')
    return find_fabric(options.fabric);
  try {
    return find_fabric(said);
  } catch (const ConfigError& error) {
    throw ConfigError(fmt::format("SKEIN_FABRIC={}: {}", said, error.what()));
  }
}

}  // namespace

std::unique_ptr<Fabric> make_fabric(Loop& loop, const JoinOptions& options,
                                    const Placement& placement) {
  const FabricKind& kind = chosen_fabric(options);
  if (placement.size == 1) return std::make_unique<AloneFabric>(loop);
  return kind.make(loop, options, placement);
}

}  // namespace skein
