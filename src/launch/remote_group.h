// The workers of a run on several hosts, each of which an agent looks after.
#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "launch/agent.h"
#include "launch/host_link.h"
#include "launch/hosts.h"
#include "launch/worker_group.h"
#include "skein/error.h"

namespace skein {

struct RemoteOptions {
  std::vector<Host> hosts;        // the first has ranks 0 and up, and so on
  std::vector<std::string> ssh;   // leads to a host: its name and a command are added
  bool ssh_to_this_host = false;  // else an agent of this host is started as it is
  std::string program;            // Skein, on every host
  bool own_program = false;       // the workers are copies of that program, too

  // HOST or HOST:PORT of the first host, by which all others reach it. Empty: the first host's
  // name. Without a port, the agent there finds one.
  std::string rendezvous;

  std::chrono::milliseconds patience{30000};  // until all agents are there

  // A host of which nothing has come for so long is lost, and an agent that has heard nothing from
  // this launcher ends its workers.
  std::chrono::milliseconds silence = kLauncherSilence;

  // The limit of an agent while the run is suspended (SIGTSTP). It is for a launcher whose host
  // loses its power meanwhile: the stopped workers would stay for ever.
  std::chrono::milliseconds suspended = std::chrono::hours(12);
};

// A host on which nothing could be started.
class HostError : public Error {
 public:
  HostError(const std::string& host, const std::string& why)
      : Error("host " + host + ": " + why), host_(host) {}
  const std::string& host() const { return host_; }

 private:
  std::string host_;
};

// `plan` is that of all workers together; its secret reaches the hosts in messages alone. Workers
// have no standard input. When a host is lost, its workers have ended, as WorkerEnd::lost says.
//
// Until all have been started, advance() throws HostError for a host that cannot be reached, and
// ConfigError for one that has another version of Skein or cannot start the program. SIGKILL that
// is not answered within two seconds loses the host. While a worker's output is not taken, nothing
// more is read from its host; after SIGKILL what is not taken is dropped.
//
// A thread tells the agents that this launcher lives, so that they keep their workers while the
// caller is held up, as by a file server that takes no logs for a while.
class RemoteGroup final : public WorkerGroup {
 public:
  RemoteGroup(RemoteOptions options, WorkerPlan plan);
  ~RemoteGroup() override;

  void start(int rank, const WorkerStreams& streams, const sigset_t& signal_mask) override;
  int alive() const override;
  void watch(std::vector<pollfd>& watched) const override;
  Time next_turn() const override;
  void advance() override;
  std::optional<WorkerEnd> reap(int rank) override;
  BoardRecord record(int rank) const override { return worker(rank).record; }
  bool stopped(int rank) const override { return worker(rank).stopped; }
  std::string host(int rank) const override { return options_.hosts[worker(rank).host].name; }
  void report_often() override;
  void signal(int number) override;
  void kill_one(int rank) override;

 private:
  struct Worker {
    std::size_t host = 0;
    FileDescriptor output, error;
    Outbox to_output, to_error;
    BoardRecord record;
    bool stopped = false, ended = false, reaped = false;
    WorkerEnd end;
  };
  enum class State { greeting, holding, begun };

  const Worker& worker(int rank) const { return workers_[static_cast<std::size_t>(rank)]; }
  Worker& worker(int rank) { return workers_[static_cast<std::size_t>(rank)]; }
  std::vector<std::string> command(const Host& host) const;
  void connect(const sigset_t& signal_mask);
  void advance(HostLink& link);
  void take_messages(HostLink& link);
  void take(HostLink& link, const Message& message);
  int checked(const HostLink& link, int rank) const;
  void print(const Output& output);
  void flush(Outbox& to);
  bool print_rest(const HostLink& link);
  bool held_up(const HostLink& link) const;
  void meet();
  void begin(const std::string& rendezvous);
  void give_up(HostLink& link, const std::string& why);
  void end(int rank, const WorkerEnd& end);
  bool has_living(const HostLink& link) const;
  void keep_pulsing();
  void stop_pulsing();

  RemoteOptions options_;
  WorkerPlan plan_;
  SteadyClock clock_;
  State state_ = State::greeting;
  Time begin_limit_ = kNever, kill_limit_ = kNever;
  bool more_to_take_ = false;
  std::vector<Worker> workers_;
  Crew ways_;  // to the hosts: one ssh each
  std::vector<HostLink> links_;

  // Guards `links_` against the thread. Free while something is written that may be held up.
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  bool suspended_ = false, ending_ = false;
  std::thread pulses_;
};

}  // namespace skein
