#include "launch/launcher.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <optional>
#include <random>
#include <set>

#include "core/check.h"
#include "core/descriptor_limit.h"
#include "launch/local_group.h"
#include "launch/logs.h"
#include "launch/meeting_place.h"
#include "launch/printer.h"
#include "launch/relay.h"
#include "launch/report.h"
#include "launch/signals.h"
#include "skein/error.h"

namespace skein {
namespace {

// Not by a person who cannot wait.
bool by_a_system(int signal) { return signal == SIGTERM || signal == SIGUSR1; }

// 128 random bits: what one run calls its memory and sockets must not be met or guessed by another.
std::string fresh_run_id() {
  std::random_device random;
  return fmt::format("{:08x}{:08x}{:08x}{:08x}", random(), random(), random(), random());
}

// What every worker of this host is told. `port` is kept for them where they may meet over TCP.
WorkerPlan plan_of(const LaunchOptions& options, const std::optional<HeldPort>& port) {
  WorkerPlan plan;
  plan.argv = options.argv;
  plan.environment = options.extra_env;
  plan.workers = plan.size = options.workers;
  plan.run_id = fresh_run_id();
  if (port) plan.rendezvous = fmt::format("127.0.0.1:{}", port->port());
  if (options.secret && (port || options.remote)) plan.secret = fresh_secret();
  return plan;
}

bool is_usage(const WorkerEnd& end) { return end.signal == 0 && end.code == 2; }

// Descriptors that `options` need: of each worker its process, its output as far as that comes
// through this launcher, and its log; of each host the way to it.
std::int64_t descriptors_for(const LaunchOptions& options) {
  constexpr std::int64_t kOfAWorker = 1, kOfShownOutput = 3, kOfRemoteOutput = 2, kOfAHost = 3;
  constexpr std::int64_t kOthers = 32;
  const std::int64_t hosts =
      options.remote ? static_cast<std::int64_t>(options.remote->hosts.size()) : 0;
  return kOthers + kOfAHost * hosts +
         options.workers * (kOfAWorker + (options.show_all ? kOfShownOutput : 0) +
                            (options.remote ? kOfRemoteOutput : 0));
}

// What kind of stopping the run is in; each later one includes those before it.
enum class Stage { running, settling, terminating, killing };

class Run {
 public:
  explicit Run(const LaunchOptions& options)
      : options_(options),
        outcomes_(static_cast<std::size_t>(options.workers)),
        stopped_since_(static_cast<std::size_t>(options.workers), kNever) {
    need_descriptors(descriptors_for(options), fmt::format("starting {} workers", options.workers));
    if (options.meeting_place && !options.remote) port_.emplace("127.0.0.1");
    if (options.remote)
      group_ = std::make_unique<RemoteGroup>(*options.remote, plan_of(options, port_));
    else
      group_ = std::make_unique<LocalGroup>(plan_of(options, port_));
    for (int rank = 0; rank < options.workers; ++rank)
      outcomes_[static_cast<std::size_t>(rank)].host = group_->host(rank);
    const bool files = !options.show_all && options.workers > 1;
    const char* temporary = std::getenv("TMPDIR");
    if (files || !options.log_dir.empty())
      logs_.emplace(options.log_dir,
                    temporary != nullptr && *temporary != '\0' ? temporary : "/tmp");
  }

  int operator()() {
    start();
    while (group_->alive() > 0 && !left_behind_) {
      wait();
      for (int number; (number = signals_.next()) != 0;) handle(number);
      group_->advance();
      for (const auto& relay : relays_) relay->pump();
      print();
      reap();
      end_the_stopped();
      if (clock_.now() >= deadline_) advance();
    }
    group_->signal(SIGKILL);  // what the workers started and left behind
    drain();
    const int code = conclude();
    print_the_rest();
    return code == 0 && printer_.dropped() ? 128 + interrupted_by_ : code;
  }

 private:
  void start() {
    const FileDescriptor nothing(open("/dev/null", O_RDONLY | O_CLOEXEC));
    for (int rank = 0; rank < options_.workers; ++rank) {
      WorkerStreams streams;
      // Workers are not in the terminal's foreground group: reading it would stop them.
      if (rank != 0 || isatty(STDIN_FILENO) != 0) streams.input = nothing.get();
      FileDescriptor output, error;
      if (options_.show_all) {
        if (logs_) log_files_.push_back(logs_->open(rank));
        const int log = logs_ ? log_files_.back().get() : -1;
        output = relay(printer_.output(), fmt::format("[{}] ", rank), log);
        error = relay(printer_.error(), fmt::format("[{}] ", rank), log);
      } else if (rank != 0) {
        output = logs_->open(rank);
      } else if (options_.remote) {
        output = relay(printer_.output(), "", -1);
        error = relay(printer_.error(), "", -1);
      }
      if (output.valid()) streams.output = streams.error = output.get();
      if (error.valid()) streams.error = error.get();
      group_->start(rank, streams, signals_.mask_before());
    }
  }

  // The end of a new pipe that a worker writes to and the launcher passes on to `to`.
  FileDescriptor relay(Outbox& to, const std::string& prefix, int log) {
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0)
      throw Error(fmt::format("cannot make a pipe: {}", system_error_text(errno)));
    relays_.push_back(std::make_unique<Relay>(FileDescriptor(ends[0]), to, prefix, log));
    return FileDescriptor(ends[1]);
  }

  // Sleeps until a worker ends, prints or a signal comes, or the stage's time is over.
  void wait() {
    std::vector<pollfd> watched{{signals_.descriptor(), POLLIN, 0}};
    group_->watch(watched);
    for (const auto& relay : relays_)
      if (relay->has_room()) watched.push_back({relay->descriptor(), POLLIN, 0});
    printer_.watch(watched);
    poll(watched.data(), watched.size(),
         milliseconds_left(std::min(
             {deadline_, next_look_, group_->next_turn(), printer_.next_look(interrupted_at_)})));
  }

  void print() { printer_.flush(clock_.now(), interrupted_at_); }

  void say(const std::string& text) {
    printer_.error().add(text);
    print();
  }

  int milliseconds_left(Time until) const {
    if (until == kNever) return -1;
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(until - clock_.now());
    return static_cast<int>(std::clamp<std::int64_t>(left.count(), 0, 1'000'000));
  }

  void handle(int number) {
    if (number == SIGTSTP) {
      group_->signal(SIGSTOP);
      raise(SIGSTOP);
      group_->signal(SIGCONT);
    } else if (interrupted_by_ == 0 || interrupted_by_ == SIGUSR1) {
      interrupted_by_ = number;
      if (number != SIGUSR1) interrupted_at_ = clock_.now();
      group_->signal(number);
    } else if (!by_a_system(number) || !by_a_system(interrupted_by_)) {
      enter(Stage::killing);
    }
  }

  void reap() {
    for (int rank = 0; rank < options_.workers; ++rank) {
      const auto end = group_->reap(rank);
      if (!end) continue;
      WorkerOutcome& outcome = outcomes_[static_cast<std::size_t>(rank)];
      outcome.end = *end;
      outcome.ended_at = clock_.now();
      const bool as_told = interrupted_by_ != 0 &&
                           (end->signal == interrupted_by_ || end->code == 128 + interrupted_by_);
      outcome.stopped = as_told || ended_early(outcome) || stage_ >= Stage::terminating;
      if (outcome.stopped && !end->lost.empty() && unreachable_.insert(outcome.host).second)
        say(fmt::format("skein: host {}: {}\n", outcome.host, end->lost));
      if (!end->failed() || outcome.stopped) continue;
      if (can_go_on_without(*end))
        lose(rank);
      else
        enter(Stage::settling);
    }
  }

  bool ended_early(const WorkerOutcome& worker) const {
    return options_.stopped_code != 0 && worker.end.signal == 0 &&
           worker.end.code == options_.stopped_code;
  }

  bool can_go_on_without(const WorkerEnd& end) const {
    const bool usage = is_usage(end);
    return options_.go_on && !usage && (group_->alive() > 0 || somebody_succeeded());
  }

  bool somebody_succeeded() const {
    return std::any_of(outcomes_.begin(), outcomes_.end(), [&](const WorkerOutcome& worker) {
      return worker.ended_at != Time() && (!worker.end.failed() || ended_early(worker));
    });
  }

  // Nothing wakes the launcher when a worker is stopped, so it looks.
  void end_the_stopped() {
    constexpr auto kLookEvery = std::chrono::milliseconds(250);
    next_look_ = kNever;
    if (!options_.go_on || stage_ != Stage::running || !somebody_succeeded()) return;
    const Time now = clock_.now();
    next_look_ = now + std::min<Duration>(kLookEvery, options_.stopped_limit);
    for (int rank = 0; rank < options_.workers; ++rank) {
      Time& since = stopped_since_[static_cast<std::size_t>(rank)];
      if (!group_->stopped(rank)) {
        since = kNever;
      } else if (since == kNever) {
        since = now;
      } else if (now - since >= options_.stopped_limit) {
        say(fmt::format("skein: rank {} was stopped when others had ended; it is killed.\n", rank));
        group_->kill_one(rank);
      }
    }
  }

  void lose(int rank) {
    WorkerOutcome& outcome = outcomes_[static_cast<std::size_t>(rank)];
    outcome.record = group_->record(rank);
    const std::string report = loss_report(outcome, rank);
    say(report);
    if (options_.on_event) options_.on_event({"lost", rank, report});
  }

  void advance() {
    if (stage_ == Stage::killing) return leave_behind();
    enter(stage_ == Stage::settling ? Stage::terminating : Stage::killing);
  }

  void leave_behind() {
    left_behind_ = true;
    for (int rank = 0; rank < options_.workers; ++rank) {
      WorkerOutcome& outcome = outcomes_[static_cast<std::size_t>(rank)];
      if (outcome.ended_at != Time()) continue;
      outcome.ended_at = clock_.now();
      outcome.end.signal = SIGKILL;
      outcome.stopped = true;
      const pid_t pid = outcome.record.pid;
      say(fmt::format(
          "skein: rank {}{} was killed and does not end: it waits in the kernel, for a device or a "
          "file server that does not answer; it is left behind.\n",
          rank, pid > 0 ? fmt::format(" (process {})", pid) : ""));
    }
  }

  void enter(Stage stage) {
    if (stage <= stage_) return;
    if (stage_ < Stage::terminating && stage >= Stage::terminating) read_board();
    stage_ = stage;
    deadline_ = kNever;
    if (stage == Stage::settling) {
      group_->report_often();
      deadline_ = clock_.now() + options_.settle;
    }
    if (stage == Stage::terminating) {
      group_->signal(SIGTERM);
      deadline_ = clock_.now() + options_.grace;
    }
    if (stage == Stage::killing) {
      group_->signal(SIGKILL);
      deadline_ = clock_.now() + options_.kill_limit;
    }
  }

  // Before the others are stopped: afterwards their records tell of the stopping.
  void read_board() {
    for (int rank = 0; rank < options_.workers; ++rank) {
      WorkerOutcome& outcome = outcomes_[static_cast<std::size_t>(rank)];
      outcome.record = group_->record(rank);
      outcome.still_ran = outcome.ended_at == Time();
      outcome.suspended = outcome.still_ran && group_->stopped(rank);
    }
  }

  // What is still in the pipes. A process that has left the group may keep one open, hence the
  // limit.
  void drain() {
    const Time until = clock_.now() + std::chrono::milliseconds(500);
    for (const auto& relay : relays_)
      for (;;) {
        relay->pump();
        print();
        if (!relay->has_room()) {
          wait_for_readers();
        } else if (relay->descriptor() < 0 || clock_.now() >= until) {
          break;
        } else {
          pollfd watched{relay->descriptor(), POLLIN, 0};
          poll(&watched, 1, milliseconds_left(until));
        }
      }
  }

  // Until somebody reads what this launcher has printed, or the user interrupts it.
  void wait_for_readers() {
    std::vector<pollfd> watched{{signals_.descriptor(), POLLIN, 0}};
    printer_.watch(watched);
    poll(watched.data(), watched.size(), milliseconds_left(printer_.next_look(interrupted_at_)));
    for (int number; (number = signals_.next()) != 0;) handle(number);
    print();
  }

  void print_the_rest() {
    for (print(); printer_.pending();) wait_for_readers();
  }

  int conclude() {
    if (stage_ < Stage::terminating) read_board();
    const bool failed =
        std::any_of(outcomes_.begin(), outcomes_.end(),
                    [](const WorkerOutcome& worker) { return worker.end.failed(); });
    if (!failed) return 0;
    if (all_but_the_lost_ended_early()) return stopped_early();
    if (options_.go_on && speak_for_survivors()) return 0;
    const int root = root_cause(outcomes_);
    if (options_.on_event && root >= 0)
      options_.on_event({"failed", root, cause(outcomes_[static_cast<std::size_t>(root)], root)});
    const auto restarts = why_not_anew(root);
    if (restarts && restarts->empty()) return 1;
    const std::string resume = options_.resume_hint ? options_.resume_hint() : "";
    if (root < 0) {
      say(fmt::format("skein: interrupted by SIG{}; the run has ended.\n{}",
                      sigabbrev_np(interrupted_by_),
                      resume.empty() ? "" : fmt::format("  resume  {}\n", resume)));
      return 128 + interrupted_by_;
    }
    const WorkerEnd& end = outcomes_[static_cast<std::size_t>(root)].end;
    const bool usage = is_usage(end);
    if (logs_ && !options_.show_all && root != 0)
      outcomes_[static_cast<std::size_t>(root)].log_tail = logs_->tail(root);
    if (!usage) {
      if (logs_) logs_->keep();
      say(failure_report(outcomes_, root, logs_ ? logs_->pattern() : "", resume,
                         restarts.value_or("")));
    } else if (!said_by_rank_0(end)) {
      say(usage_report(outcomes_[static_cast<std::size_t>(root)], root));
    }
    return usage ? 2 : 1;
  }

  // Or well; somebody did so early. Of go_on's survivors the others are no matter.
  bool all_but_the_lost_ended_early() const {
    const auto early = [&](const WorkerOutcome& worker) { return ended_early(worker); };
    return std::any_of(outcomes_.begin(), outcomes_.end(), early) &&
           std::all_of(outcomes_.begin(), outcomes_.end(), [&](const WorkerOutcome& worker) {
             return !worker.end.failed() || early(worker) || options_.go_on;
           });
  }

  int stopped_early() {
    const std::string resume = options_.resume_hint ? options_.resume_hint() : "";
    say(fmt::format("skein: the run was stopped before its end.\n{}",
                    resume.empty() ? "" : fmt::format("  resume  {}\n", resume)));
    return options_.stopped_code;
  }

  // Nullopt when that is out of the question.
  std::optional<std::string> why_not_anew(int root) const {
    if (!options_.why_not_anew || root < 0 || interrupted_by_ != 0) return std::nullopt;
    const WorkerOutcome& first = outcomes_[static_cast<std::size_t>(root)];
    if (is_usage(first.end)) return std::nullopt;
    RunLoss loss{cause(first, root), 0};
    for (const WorkerOutcome& worker : outcomes_)
      loss.samples = std::max(loss.samples, worker.record.samples);
    return options_.why_not_anew(loss);
  }

  // Whether anybody succeeded. Then the terminal shows what rank 0 would have said.
  bool speak_for_survivors() {
    const auto first = std::find_if(outcomes_.begin(), outcomes_.end(),
                                    [](const auto& worker) { return !worker.end.failed(); });
    if (first == outcomes_.end()) return false;
    const auto rank = static_cast<int>(first - outcomes_.begin());
    if (rank != 0 && logs_ && !options_.show_all) printer_.output().add(logs_->tail(rank) + "\n");
    return true;
  }

  // Every rank meets the same user error and says so; rank 0 (with show_all, each) on the terminal.
  bool said_by_rank_0(const WorkerEnd& end) const {
    return options_.show_all || (outcomes_[0].end.signal == 0 && outcomes_[0].end.code == end.code);
  }

  const LaunchOptions& options_;
  SteadyClock clock_;
  SignalQueue signals_;
  Printer printer_{clock_.now()};
  std::optional<HeldPort> port_;
  std::optional<LogDirectory> logs_;
  std::vector<FileDescriptor> log_files_;
  std::vector<std::unique_ptr<Relay>> relays_;
  std::vector<WorkerOutcome> outcomes_;
  std::vector<Time> stopped_since_;
  std::set<std::string> unreachable_;  // hosts of which nobody knows whether they obeyed
  Time next_look_ = kNever;
  Stage stage_ = Stage::running;
  Time deadline_ = kNever;
  int interrupted_by_ = 0;
  Time interrupted_at_ = kNever;        // by a signal that ends runs
  bool left_behind_ = false;            // workers that do not end
  std::unique_ptr<WorkerGroup> group_;  // last, so that it goes first: the workers use the rest
};

}  // namespace

int launch(const LaunchOptions& options) {
  SKEIN_CHECK(options.workers > 0 && !options.argv.empty(), "{} workers of a program of {} words",
              options.workers, options.argv.size());
  return Run(options)();
}

}  // namespace skein
