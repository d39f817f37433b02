#include "launch/agent.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <pthread.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <filesystem>
#include <memory>
#include <optional>
#include <vector>

#include "core/check.h"
#include "core/descriptor_limit.h"
#include "launch/agent_messages.h"
#include "launch/keepalive.h"
#include "launch/local_group.h"
#include "launch/meeting_place.h"
#include "launch/outbox.h"
#include "skein/error.h"

namespace skein {
namespace {

using namespace std::chrono_literals;

// Above this, workers that print wait until the launcher has read what they printed before.
constexpr std::size_t kMostOutput = std::size_t{1} << 20;
constexpr std::size_t kMostInAPipe = std::size_t{1} << 16;
constexpr auto kReportEvery = 500ms, kReportOften = 50ms;
constexpr auto kLinger = 5s;  // for the launcher to have read the last message

// One of the two streams of a worker.
struct OutputPipe {
  int rank;
  bool error;
  FileDescriptor end;
};

struct Worker {
  bool ended = false;
  bool stopped = false;
  Time told{};  // the last change of its record that the launcher knows
};

class Agent {
 public:
  Agent(int input, int output) : input_(input), outbox_(output), output_(output) {
    make_nonblocking(input);
    make_nonblocking(output);
  }

  void operator()() {
    outbox_.add(greeting() + "\n");
    while (flush() && !over()) {
      wait();
      if (!read_orders()) return;
      keep_alive();
      if (!group_) continue;
      for (OutputPipe& pipe : pipes_) pump(pipe, kMostOutput);
      reap();
      if (clock_.now() >= next_report_) report();
    }
  }

 private:
  bool flush() {
    if (!outbox_.flush()) throw IoError("the launcher does not listen any more");
    return true;
  }

  // Throws when the launcher is gone and its connection does not end.
  void keep_alive() {
    const Time now = clock_.now();
    if (keepalive_.lost(now))
      throw IoError(
          fmt::format("nothing has come from the launcher for {} s", seconds(keepalive_.limit())));
    if (!keepalive_.due(now)) return;
    keepalive_.sent(now);
    if (outbox_.size() == 0)
      outbox_.add(frame(MessageKind::alive));  // else something is on its way
  }

  // All is said and nobody has closed the line: the launcher is gone, or cut off.
  bool over() const { return all_ended_at_ && clock_.now() >= *all_ended_at_ + kLinger; }

  void wait() {
    std::vector<pollfd> watched{{input_, POLLIN, 0}};
    if (outbox_.size() > 0) watched.push_back({output_, POLLOUT, 0});
    Time until = keepalive_.next_look();
    if (all_ended_at_) {
      until = std::min(until, *all_ended_at_ + kLinger);
    } else if (group_) {
      group_->watch(watched);
      if (outbox_.size() < kMostOutput)
        for (const OutputPipe& pipe : pipes_) watched.push_back({pipe.end.get(), POLLIN, 0});
      until = std::min(until, next_report_);
    }
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(until - clock_.now());
    poll(watched.data(), watched.size(), static_cast<int>(std::max<std::int64_t>(0, left.count())));
  }

  // False when the launcher has closed the line.
  bool read_orders() {
    std::array<char, 1 << 14> chunk;
    ssize_t count;
    while ((count = read(input_, chunk.data(), chunk.size())) > 0) {
      keepalive_.heard(clock_.now());
      reader_.add({chunk.data(), static_cast<std::size_t>(count)});
      while (auto message = reader_.next()) obey(*message);
    }
    return count < 0 && (errno == EAGAIN || errno == EINTR);
  }

  void obey(const Message& message) {
    if (message.kind == MessageKind::hold) return hold(decode_hold(message.body));
    if (message.kind == MessageKind::start) return start(decode_start(message.body));
    if (message.kind == MessageKind::pulse)
      return keepalive_.set_limit(std::chrono::milliseconds(decode_number(message.body)));
    if (!group_) return;  // they could not be started, as the launcher will read
    if (message.kind == MessageKind::signal) {
      group_->signal(std::clamp(decode_number(message.body), 1, 64));
    } else if (message.kind == MessageKind::kill_one) {
      const int rank = decode_number(message.body);
      if (rank >= first_rank_ && rank < first_rank_ + static_cast<int>(workers_.size()))
        group_->kill_one(rank);
    } else if (message.kind == MessageKind::report_often) {
      report_often();
    } else {
      throw IoError("the launcher sent what only agents send");
    }
  }

  void hold(const HoldOrder& order) {
    try {
      port_.emplace(order.host);
      if (port_->loopback() && !order.loopback_will_do)
        return refuse(fmt::format(
            "'{}' means the loopback interface there, which no other host reaches: expected "
            "--rendezvous with the number or another name of that host",
            order.host));
      outbox_.add(frame(MessageKind::held, encode_number(port_->port())));
    } catch (const Error& error) {
      refuse(fmt::format("{}: expected --rendezvous with an address of that host", error.what()));
    }
  }

  void refuse(const std::string& why) { outbox_.add(frame(MessageKind::refused, why)); }

  void start(StartOrder order) {
    if (group_) throw IoError("the launcher started workers twice");
    try {
      std::error_code code;
      std::filesystem::current_path(order.folder, code);
      if (code)
        throw ConfigError(
            fmt::format("cannot work in '{}', the launcher's folder: {}; expected it on every host",
                        order.folder, code.message()));
      if (order.own_program)
        order.plan.argv[0] = std::filesystem::read_symlink("/proc/self/exe").string();
      start_all(order.plan);
      outbox_.add(frame(MessageKind::started));
    } catch (const Error& error) {
      group_.reset();
      refuse(error.what());
    }
  }

  void start_all(const WorkerPlan& plan) {
    constexpr int kOfAWorker = 3, kOthers = 32;  // two pipes and the process
    need_descriptors(kOfAWorker * plan.workers + kOthers,
                     fmt::format("starting {} workers", plan.workers));
    first_rank_ = plan.first_rank;
    group_ = std::make_unique<LocalGroup>(plan);
    workers_.resize(static_cast<std::size_t>(plan.workers));
    const FileDescriptor nothing(open("/dev/null", O_RDONLY | O_CLOEXEC));
    sigset_t mask;
    pthread_sigmask(SIG_SETMASK, nullptr, &mask);
    for (int rank = plan.first_rank; rank < plan.first_rank + plan.workers; ++rank) {
      const FileDescriptor output = pipe_of(rank, false), error = pipe_of(rank, true);
      group_->start(rank, {nothing.get(), output.get(), error.get()}, mask);
    }
    next_report_ = clock_.now() + report_every_;
  }

  FileDescriptor pipe_of(int rank, bool error) {
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0)
      throw Error(fmt::format("cannot make a pipe: {}", system_error_text(errno)));
    make_nonblocking(ends[0]);
    pipes_.push_back({rank, error, FileDescriptor(ends[0])});
    return FileDescriptor(ends[1]);
  }

  // Passes on what is there, unless more than `most` bytes wait for the launcher.
  void pump(OutputPipe& pipe, std::size_t most) {
    std::array<char, kMostOutputOfAMessage> chunk;
    while (pipe.end.valid() && outbox_.size() < most) {
      const ssize_t count = read(pipe.end.get(), chunk.data(), chunk.size());
      if (count < 0 && errno == EINTR) continue;
      if (count < 0 && errno == EAGAIN) return;
      if (count <= 0) {
        pipe.end = FileDescriptor();
        return;
      }
      outbox_.add(frame(
          MessageKind::output,
          encode(Output{pipe.rank, pipe.error, {chunk.data(), static_cast<std::size_t>(count)}})));
    }
  }

  void reap() {
    for (int rank = first_rank_; rank < first_rank_ + static_cast<int>(workers_.size()); ++rank) {
      const auto end = group_->reap(rank);
      if (!end) continue;
      for (OutputPipe& pipe : pipes_)
        if (pipe.rank == rank) pump(pipe, outbox_.size() + kMostInAPipe);
      tell(rank);
      outbox_.add(frame(MessageKind::ended, encode(EndNews{rank, *end})));
      workers_[static_cast<std::size_t>(rank - first_rank_)].ended = true;
      if (end->failed()) report_often();  // who waited for it is asked for next
    }
    const bool all = std::all_of(workers_.begin(), workers_.end(),
                                 [](const Worker& worker) { return worker.ended; });
    if (!all || all_ended_at_) return;
    group_->signal(SIGKILL);  // what the workers started and left behind
    all_ended_at_ = clock_.now();
  }

  void report_often() {
    report_every_ = kReportOften;
    report();
  }

  void report() {
    next_report_ = clock_.now() + report_every_;
    if (outbox_.size() >= kMostOutput) return;
    for (int rank = first_rank_; rank < first_rank_ + static_cast<int>(workers_.size()); ++rank)
      if (!workers_[static_cast<std::size_t>(rank - first_rank_)].ended) tell(rank);
  }

  // What the launcher does not know yet.
  void tell(int rank) {
    Worker& worker = workers_[static_cast<std::size_t>(rank - first_rank_)];
    const RecordNews news{rank, group_->stopped(rank), group_->record(rank)};
    if (news.record.changed == worker.told && news.stopped == worker.stopped) return;
    worker.told = news.record.changed;
    worker.stopped = news.stopped;
    outbox_.add(frame(MessageKind::record, encode(news, clock_.now())));
  }

  const SteadyClock clock_;
  Keepalive keepalive_{kLauncherSilence, clock_.now()};
  int input_;
  Outbox outbox_;
  int output_;
  FrameReader reader_;
  std::optional<HeldPort> port_;
  std::vector<OutputPipe> pipes_;
  int first_rank_ = 0;
  std::vector<Worker> workers_;
  Duration report_every_ = kReportEvery;
  Time next_report_ = kNever;
  std::optional<Time> all_ended_at_;
  std::unique_ptr<LocalGroup> group_;
};

}  // namespace

void run_agent(int input, int output) { Agent(input, output)(); }

}  // namespace skein
