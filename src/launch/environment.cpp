#include "launch/environment.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <climits>
#include <cstdint>
#include <cstdlib>
#include <initializer_list>
#include <string_view>
#include <vector>

#include "skein/error.h"

namespace skein {
namespace {

// More workers than any machine has; keeps sums of ranks and sizes far from overflow.
constexpr int kMaximumSize = 1 << 20;

// One launcher's variables, read with errors that name that launcher.
class Variables {
 public:
  Variables(const Getenv& getenv, std::string launcher)
      : getenv_(getenv), launcher_(std::move(launcher)) {}

  std::optional<std::string> text(const char* name) const {
    const char* value = getenv_(name);
    if (value == nullptr || *value == '\0') return std::nullopt;
    return value;
  }

  bool any(std::initializer_list<const char*> names) const {
    for (const char* name : names)
      if (text(name)) return true;
    return false;
  }

  // Throws unless all of `names` are set: names those that are and those that are not.
  void require(std::initializer_list<const char*> names) const {
    std::vector<std::string> found, missing;
    for (const char* name : names) {
      if (const auto value = text(name))
        found.push_back(fmt::format("{}={}", name, *value));
      else
        missing.emplace_back(name);
    }
    if (!missing.empty())
      throw ConfigError(fmt::format(
          "the environment of {} is half set: {} {} set but {} {} not; set all of them, or unset "
          "all to run alone",
          launcher_, fmt::join(found, ", "), found.size() == 1 ? "is" : "are",
          fmt::join(missing, ", "), missing.size() == 1 ? "is" : "are"));
  }

  int number(const char* name, int low, int high) const {
    const std::string value = text(name).value_or("");
    int out = 0;
    const auto [rest, code] = std::from_chars(value.data(), value.data() + value.size(), out);
    if (code != std::errc() || rest != value.data() + value.size() || out < low || out > high)
      throw ConfigError(
          fmt::format("{}={} in the environment of {}: expected a whole number "
                      "from {} to {}",
                      name, value, launcher_, low, high));
    return out;
  }

  int number_or(const char* name, int low, int high, int otherwise) const {
    return text(name) ? number(name, low, high) : otherwise;
  }

  // Reads rank and size, which must be set.
  Placement place(const char* rank, const char* size) const {
    Placement out;
    out.launcher = launcher_;
    out.size = number(size, 1, kMaximumSize);
    out.rank = number(rank, 0, kMaximumSize);
    check_below(rank, out.rank, size, out.size);
    out.local_rank = out.rank;
    out.local_size = out.size;
    return out;
  }

  void localise(Placement& out, const char* rank, const char* size) const {
    out.local_size = number_or(size, 1, out.size, out.local_size);
    out.local_rank = number_or(rank, 0, kMaximumSize, out.local_rank);
    check_below(rank, out.local_rank, size, out.local_size);
  }

  // HOST:PORT by the variables that torchrun sets and job scripts set for their programs; or empty.
  std::string master() const {
    if (!text("MASTER_ADDR") || !text("MASTER_PORT")) return "";
    return address(*text("MASTER_ADDR"), number("MASTER_PORT", 1, 65535));
  }

  // Where whoever wrote the job's script wants the workers to meet; or empty.
  std::string rendezvous() const { return text("SKEIN_RENDEZVOUS").value_or(master()); }

  static std::string address(const std::string& host, int port) {
    const bool number6 = host.find(':') != std::string::npos;
    return fmt::format(fmt::runtime(number6 ? "[{}]:{}" : "{}:{}"), host, port);
  }

  void check_below(const char* rank, int rank_value, const char* size, int size_value) const {
    if (rank_value < size_value) return;
    const auto origin = [&](const char* name) { return text(name) ? "" : " (assumed)"; };
    throw ConfigError(
        fmt::format("{}={}{} and {}={}{} in the environment of {}: the rank must be below the "
                    "number of workers",
                    rank, rank_value, origin(rank), size, size_value, origin(size), launcher_));
  }

 private:
  const Getenv& getenv_;
  std::string launcher_;
};

std::optional<Placement> detect_skein(const Getenv& getenv) {
  const Variables variables(getenv, "skein");
  if (!variables.any({"SKEIN_RANK", "SKEIN_SIZE", "SKEIN_RUN"})) return std::nullopt;
  variables.require({"SKEIN_RANK", "SKEIN_SIZE", "SKEIN_RUN"});
  Placement out = variables.place("SKEIN_RANK", "SKEIN_SIZE");
  variables.localise(out, "SKEIN_LOCAL_RANK", "SKEIN_LOCAL_SIZE");
  out.run_id = "skein-" + *variables.text("SKEIN_RUN");
  out.rendezvous = variables.text("SKEIN_RENDEZVOUS").value_or("");
  return out;
}

std::optional<Placement> detect_torchrun(const Getenv& getenv) {
  const Variables variables(getenv, "torchrun");
  if (!variables.any({"RANK", "WORLD_SIZE"})) return std::nullopt;
  variables.require({"RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"});
  Placement out = variables.place("RANK", "WORLD_SIZE");
  variables.localise(out, "LOCAL_RANK", "LOCAL_WORLD_SIZE");
  out.rendezvous = variables.master();
  // Then torchrun itself listens at MASTER_PORT. This one is below those that a system hands out.
  if (variables.text("TORCHELASTIC_USE_AGENT_STORE").value_or("False") == "True")
    out.rendezvous =
        Variables::address(*variables.text("MASTER_ADDR"),
                           20000 + (variables.number("MASTER_PORT", 1, 65535) + 1) % 10000);
  // The run id alone is "none" unless the user chose one, and a restarted group keeps its id.
  out.run_id = fmt::format("torchrun-{}-{}-{}-{}", *variables.text("MASTER_ADDR"),
                           variables.number("MASTER_PORT", 1, 65535),
                           variables.text("TORCHELASTIC_RUN_ID").value_or("none"),
                           variables.text("TORCHELASTIC_RESTART_COUNT").value_or("0"));
  return out;
}

std::optional<Placement> detect_openmpi(const Getenv& getenv) {
  const Variables variables(getenv, "openmpi");
  if (!variables.any({"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"})) return std::nullopt;
  const bool old = !variables.text("PMIX_NAMESPACE") && variables.text("OMPI_MCA_ess_base_jobid");
  const char* job = old ? "OMPI_MCA_ess_base_jobid" : "PMIX_NAMESPACE";
  variables.require({"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", job});
  Placement out = variables.place("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE");
  variables.localise(out, "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE");
  out.run_id = "openmpi-" + *variables.text(job);
  out.rendezvous = variables.rendezvous();
  return out;
}

std::optional<Placement> detect_mpich(const Getenv& getenv, pid_t parent) {
  const Variables variables(getenv, "mpich");
  // srun --mpi=pmi2 sets PMI_RANK too, but only Slurm's own variables tell its runs apart.
  if (variables.any({"SLURM_STEP_ID"}) && !variables.any({"MPI_LOCALRANKID"})) return std::nullopt;
  if (!variables.any({"PMI_RANK", "PMI_SIZE"})) return std::nullopt;
  variables.require({"PMI_RANK", "PMI_SIZE"});
  Placement out = variables.place("PMI_RANK", "PMI_SIZE");
  variables.localise(out, "MPI_LOCALRANKID", "MPI_LOCALNRANKS");
  out.run_id = fmt::format("mpich-{}", parent);
  out.rendezvous = variables.rendezvous();
  return out;
}

// The `node`-th number of a list such as "4(x2),3": 4, 4, 3.
std::optional<int> tasks_on_node(std::string_view list, int node) {
  while (!list.empty()) {
    const std::string_view item = list.substr(0, list.find(','));
    list.remove_prefix(item.size() == list.size() ? item.size() : item.size() + 1);
    int tasks = 0, times = 1;
    const char* end = item.data() + item.size();
    const auto [rest, code] = std::from_chars(item.data(), end, tasks);
    if (code != std::errc() || tasks < 1) return std::nullopt;
    if (rest != end) {
      if (!std::string_view(rest, static_cast<std::size_t>(end - rest)).starts_with("(x"))
        return std::nullopt;
      const auto [close, times_code] = std::from_chars(rest + 2, end, times);
      if (times_code != std::errc() || times < 1 || close == end || *close != ')')
        return std::nullopt;
    }
    if (node < times) return tasks;
    node -= times;
  }
  return std::nullopt;
}

// Jobs have numbers that follow each other, so those that share a node get ports of their own,
// below those that a system hands out by itself.
std::string slurm_rendezvous(const Variables& variables) {
  const auto nodes = variables.text("SLURM_STEP_NODELIST");
  if (!nodes) return "";
  const auto job = static_cast<std::int64_t>(variables.number("SLURM_JOB_ID", 0, INT_MAX));
  const auto step = static_cast<std::int64_t>(variables.number("SLURM_STEP_ID", 0, INT_MAX));
  return Variables::address(first_host(*nodes),
                            static_cast<int>(20000 + (job + 1009 * step) % 10000));
}

std::optional<Placement> detect_slurm(const Getenv& getenv) {
  const Variables variables(getenv, "slurm");
  if (!variables.any({"SLURM_PROCID", "SLURM_STEP_ID"})) return std::nullopt;
  if (!variables.text("SLURM_STEP_ID") && variables.text("SLURM_JOB_ID") &&
      variables.number("SLURM_PROCID", 0, kMaximumSize) == 0)
    return std::nullopt;  // a batch script: Slurm gives it rank 0, but there is no step
  const bool step = variables.text("SLURM_STEP_NUM_TASKS").has_value();
  const char* size = step ? "SLURM_STEP_NUM_TASKS" : "SLURM_NTASKS";
  variables.require({"SLURM_PROCID", size, "SLURM_JOB_ID", "SLURM_STEP_ID"});
  Placement out = variables.place("SLURM_PROCID", size);
  if (out.size == 1) return std::nullopt;
  if (const auto list = variables.text("SLURM_STEP_TASKS_PER_NODE")) {
    const int node = variables.number_or("SLURM_NODEID", 0, kMaximumSize, 0);
    const auto tasks = tasks_on_node(*list, node);
    if (!tasks || *tasks > out.size)
      throw ConfigError(
          fmt::format("SLURM_STEP_TASKS_PER_NODE={} in the environment of slurm does "
                      "not say how many tasks node {} has: expected a list such as "
                      "4(x2),3",
                      *list, node));
    out.local_size = *tasks;
  }
  out.local_rank = variables.number_or("SLURM_LOCALID", 0, kMaximumSize, out.rank);
  variables.check_below("SLURM_LOCALID", out.local_rank, "SLURM_STEP_TASKS_PER_NODE",
                        out.local_size);
  // A job that is requeued keeps its number.
  out.run_id = fmt::format("slurm-{}-{}-{}", *variables.text("SLURM_JOB_ID"),
                           *variables.text("SLURM_STEP_ID"),
                           variables.text("SLURM_RESTART_COUNT").value_or("0"));
  out.rendezvous = variables.rendezvous();
  if (out.rendezvous.empty()) out.rendezvous = slurm_rendezvous(variables);
  return out;
}

std::optional<Placement> detect_cluster(const Getenv& getenv, pid_t parent) {
  if (auto placement = detect_openmpi(getenv)) return placement;
  if (auto placement = detect_mpich(getenv, parent)) return placement;
  return detect_slurm(getenv);
}

}  // namespace

std::string first_host(std::string_view hostlist) {
  std::string host;
  while (!hostlist.empty() && hostlist.front() != ',') {
    const std::size_t open = hostlist.find_first_of(",[");
    host += hostlist.substr(0, open);
    if (open == std::string_view::npos || hostlist[open] == ',') break;
    hostlist.remove_prefix(open + 1);
    host += hostlist.substr(0, hostlist.find_first_of("-,]"));
    hostlist.remove_prefix(std::min(hostlist.size(), hostlist.find(']')));
    if (!hostlist.empty()) hostlist.remove_prefix(1);
  }
  return host;
}

std::optional<Placement> detect(const Getenv& getenv, pid_t parent) {
  if (auto placement = detect_skein(getenv)) return placement;
  if (!Variables(getenv, "torchrun").any({"RANK"}))
    if (auto placement = detect_cluster(getenv, parent)) return placement;
  if (auto placement = detect_torchrun(getenv)) return placement;
  return detect_cluster(getenv, parent);
}

}  // namespace skein
