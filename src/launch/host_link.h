// The way to one host of a run: the process that leads there (ssh) and the agent at its end.
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/clock.h"
#include "launch/agent_line.h"
#include "launch/crew.h"
#include "launch/hosts.h"
#include "launch/keepalive.h"

namespace skein {

class HostLink {
 public:
  // Starts `command`, which leads to an agent, as the next process of `ways`. Its ranks are
  // `first_rank` and up. It is lost after `silence`.
  HostLink(const Host& host, int first_rank, std::vector<std::string> command, Crew& ways,
           const sigset_t& signal_mask, std::chrono::milliseconds silence, Time now);

  const Host& host() const { return host_; }
  int first_rank() const { return first_rank_; }
  bool has_rank(int rank) const {
    return rank >= first_rank_ && rank < first_rank_ + host_.workers;
  }
  AgentLine& line() { return *line_; }
  const AgentLine& line() const { return *line_; }
  void watch(std::vector<pollfd>& watched) const;

  bool greeted() const { return line_->version().has_value(); }
  void check_version() const;  // throws ConfigError when the agent has another one

  // Tells the agent now and then that the launcher lives, and that it may be silent for `limit`.
  void pulse(Time now, std::chrono::milliseconds limit);

  // The same at once.
  void announce(std::chrono::milliseconds limit);

  // Whether nothing has come from the agent for keepalive().limit(), though all was read that had
  // arrived.
  bool silent(Time now);
  const Keepalive& keepalive() const { return keepalive_; }

  // Whether the agent is gone: its process has ended, or the line has been closed for a while.
  bool has_ended(Time now);
  Time next_look() const;  // when has_ended() may change without anything to watch
  std::string why_it_ended() const;
  std::string no_answer(std::chrono::milliseconds patience) const;

  // Ends the agent when it has read what was sent; what does not greet as agents do, at once.
  void finish();

  void give_up();  // and ends the process
  bool given_up() const { return given_up_; }

 private:
  Host host_;
  int first_rank_;
  std::vector<std::string> command_;
  Crew& ways_;
  int process_;  // its number in ways_
  std::unique_ptr<AgentLine> line_;
  Keepalive keepalive_;
  bool announced_ = false;
  Time closed_at_ = kNever;
  std::optional<WorkerEnd> end_;
  bool given_up_ = false;
};

}  // namespace skein
