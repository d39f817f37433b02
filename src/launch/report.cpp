#include "launch/report.h"

#include <fmt/format.h>

#include <cstring>
#include <tuple>

namespace skein {
namespace {

bool knows(const BoardRecord& record) { return record.pid != 0; }

bool reported_failure(const BoardRecord& record) {
  return knows(record) && record.phase == Phase::failed;
}

bool has_left(const BoardRecord& record) { return knows(record) && record.phase == Phase::left; }

// It failed because it lost a peer, as far as it has said.
bool is_consequence(const WorkerOutcome& worker) {
  return worker.end.signal == 0 && worker.end.lost.empty() && worker.record.lost_peer >= 0;
}

// It ended well while others still needed it, for all that is known.
bool left_well(const WorkerOutcome& worker) {
  return worker.ended_at != Time() && !worker.end.failed() && !worker.stopped &&
         worker.record.lost_peer < 0 && worker.record.phase != Phase::done;
}

// It still ran when others had given it up, and waited for nobody.
bool was_silent(const WorkerOutcome& worker) {
  const BoardRecord& record = worker.record;
  if (!worker.still_ran || reported_failure(record) || has_left(record)) return false;
  if (worker.suspended) return true;
  return record.phase != Phase::done && record.lost_peer < 0 && record.waiting_for < 0 &&
         record.operation.empty();
}

std::string how_it_ended(const WorkerOutcome& worker) {
  const WorkerEnd& end = worker.end;
  if (!end.lost.empty()) return "was lost with its host";
  if (was_silent(worker))
    return worker.suspended ? "was suspended, as by SIGSTOP," : "did not answer the others";
  if (left_well(worker)) return "left the others, with exit code 0,";
  if (worker.stopped && has_left(worker.record)) return "left the run";
  if (end.signal != 0) return fmt::format("was killed by SIG{}", sigabbrev_np(end.signal));
  if (!worker.record.failure.empty()) return "failed";
  return fmt::format("exited with code {}", end.code);
}

std::string name_of(const WorkerOutcome& worker, int rank) {
  return worker.host.empty() ? fmt::format("rank {}", rank)
                             : fmt::format("rank {} on {}", rank, worker.host);
}

// " at step 1204 (backward)", or nothing when the worker never came to the board.
std::string where(const BoardRecord& record) {
  if (!knows(record)) return "";
  const bool over = record.phase == Phase::failed || record.phase == Phase::left;
  const Phase phase = over ? record.failed_in : record.phase;
  return fmt::format(" at step {} ({})", record.step, phase_name(phase));
}

std::string activity(const WorkerOutcome& worker) {
  const BoardRecord& record = worker.record;
  if (record.waiting_for >= 0)
    return fmt::format("waiting for rank {}{}{}", record.waiting_for,
                       record.operation.empty() ? "" : " in ", record.operation);
  if (!record.operation.empty()) return fmt::format("waiting in {}", record.operation);
  if (record.lost_peer >= 0) return fmt::format("lost rank {}", record.lost_peer);
  if (reported_failure(record)) return fmt::format("failed: {}", record.failure);
  return phase_name(record.phase);
}

std::string indented(const std::string& text, const char* first, const char* rest) {
  std::string out = first;
  for (std::size_t i = 0; i < text.size(); ++i) {
    out += text[i];
    if (text[i] == '\n' && i + 1 < text.size()) out += rest;
  }
  if (out.back() != '\n') out += '\n';
  return out;
}

}  // namespace

namespace {

// The rank without which `worker` could not go on, or -1.
int missed_by(const WorkerOutcome& worker) {
  if (worker.still_ran && !worker.suspended && worker.record.lost_peer < 0)
    return worker.record.waiting_for;
  return is_consequence(worker) ? worker.record.lost_peer : -1;
}

bool is_cause(const WorkerOutcome& worker) {
  if (was_silent(worker) || left_well(worker)) return true;
  return worker.end.failed() && (has_left(worker.record) || reported_failure(worker.record));
}

// From a rank that only lost its peer to that one, and so on, as far as one of them was a cause.
// Two that waited for each other are none: then the rank that gave up first stays.
int trace_back(const std::vector<WorkerOutcome>& workers, int rank) {
  int last = rank;
  for (std::size_t hops = 0; hops < workers.size(); ++hops) {
    const int missed = missed_by(workers[static_cast<std::size_t>(rank)]);
    if (missed < 0 || missed >= static_cast<int>(workers.size())) break;
    rank = missed;
    if (is_cause(workers[static_cast<std::size_t>(rank)])) last = rank;
  }
  return last;
}

// What the first to give up `root` said, or nothing.
std::string complaint_about(int root, const std::vector<WorkerOutcome>& workers) {
  const WorkerOutcome* first = nullptr;
  for (const WorkerOutcome& worker : workers) {
    if (!is_consequence(worker) || worker.record.lost_peer != root || worker.record.failure.empty())
      continue;
    if (first == nullptr || worker.record.failed_at < first->record.failed_at) first = &worker;
  }
  if (first == nullptr) return "";
  return fmt::format("{}: {}", name_of(*first, static_cast<int>(first - workers.data())),
                     first->record.failure);
}

}  // namespace

int root_cause(const std::vector<WorkerOutcome>& workers) {
  // Signals go before exits at the same moment: several ends found at once have no order.
  using Order = std::tuple<bool, Time, bool>;
  int best = -1;
  Order best_order;
  for (std::size_t rank = 0; rank < workers.size(); ++rank) {
    const WorkerOutcome& worker = workers[rank];
    const bool reported = reported_failure(worker.record);
    if (!worker.end.failed() || (worker.stopped && !reported)) continue;
    const bool killed = worker.end.signal != 0 || !worker.end.lost.empty();
    const bool recorded = reported || has_left(worker.record);
    const Order order(is_consequence(worker), recorded ? worker.record.failed_at : worker.ended_at,
                      !killed);
    if (best < 0 || order < best_order) {
      best = static_cast<int>(rank);
      best_order = order;
    }
  }
  return best < 0 ? best : trace_back(workers, best);
}

std::string cause(const WorkerOutcome& worker, int rank) {
  const std::string& error = worker.end.lost.empty() ? worker.record.failure : worker.end.lost;
  return fmt::format("{} {}{}{}{}", name_of(worker, rank), how_it_ended(worker),
                     where(worker.record), error.empty() ? "" : ": ", error);
}

std::string failure_report(const std::vector<WorkerOutcome>& workers, int root,
                           const std::string& logs, const std::string& resume,
                           const std::string& restarts) {
  const WorkerOutcome& first = workers[static_cast<std::size_t>(root)];
  std::string out = fmt::format("skein: {} {}{}; the run has ended.\n", name_of(first, root),
                                how_it_ended(first), where(first.record));
  if (!first.end.lost.empty())
    out += indented(first.end.lost, "  error   ", "          ");
  else if (!first.record.failure.empty())
    out += indented(first.record.failure, "  error   ", "          ");
  else if (const std::string complaint = complaint_about(root, workers); !complaint.empty())
    out += indented(complaint, "  error   ", "          ");
  if (first.end.lost.empty() && first.record.failure.empty() && !first.log_tail.empty())
    out +=
        fmt::format("  rank {} wrote last\n", root) + indented(first.log_tail, "    | ", "    | ");

  for (std::size_t rank = 0; rank < workers.size(); ++rank) {
    const WorkerOutcome& worker = workers[rank];
    if (static_cast<int>(rank) == root) continue;
    const std::string name = name_of(worker, static_cast<int>(rank));
    const bool lost = !worker.end.lost.empty();
    if (knows(worker.record) && !lost)
      out += fmt::format("  {}  step {}  {}\n", name, worker.record.step, activity(worker));
    else if (lost || (worker.end.failed() && !worker.stopped))
      out += fmt::format("  {}  {}\n", name, how_it_ended(worker));
  }
  if (!restarts.empty()) out += fmt::format("  restarts  {}\n", restarts);
  if (!logs.empty()) out += fmt::format("  logs    {}\n", logs);
  if (!resume.empty()) out += fmt::format("  resume  {}\n", resume);
  return out;
}

std::string loss_report(const WorkerOutcome& worker, int rank) {
  const std::string& error = worker.end.lost.empty() ? worker.record.failure : worker.end.lost;
  return fmt::format("skein: {} {}{}; the others go on.{}\n", name_of(worker, rank),
                     how_it_ended(worker), where(worker.record),
                     error.empty() ? "" : " Its error: " + error);
}

std::string usage_report(const WorkerOutcome& worker, int rank) {
  if (!worker.record.failure.empty()) return fmt::format("skein: {}\n", worker.record.failure);
  if (!worker.log_tail.empty()) return indented(worker.log_tail, "", "");
  return fmt::format("skein: rank {} exited with code {}\n", rank, worker.end.code);
}

}  // namespace skein
