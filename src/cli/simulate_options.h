// Reads the options of `skein simulate`.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cli/job_options.h"
#include "cli/options.h"
#include "sim/objective.h"
#include "sim/scenario.h"
#include "train/options.h"

namespace skein {

// Declares every option; read() checks them and makes the scenario.
class SimulateOptionReader {
 public:
  explicit SimulateOptionReader(CLI::App& command);

  struct Request {
    sim::Scenario scenario;
    std::unique_ptr<sim::Objective> objective;  // null: time only
    std::string objective_name;
    std::string trace;  // file, or empty
    int trace_workers = 0;
  };

  // To be called once, when the command line was parsed. ConfigError for what does not fit
  // together.
  Request read();

  // Only what says which of the three ways of running this is. May be called before read().
  void read_config_file() { options_.read_config_file(); }
  const std::vector<std::string>& sweeps() const { return sweeps_; }

  // Whether a run, or one of a sweep, may have a real model's gradients.
  bool may_use_models() const;
  const std::string& swarm() const { return swarm_; }
  CommandOptions& options() { return options_; }
  const CommandOptions& options() const { return options_; }
  const TrainOptions& job() const { return job_; }  // after read(): what `train` has, too

 private:
  void declare_cluster();
  void declare_compute();
  void declare_objective();
  void declare_length();
  void declare_reports();

  sim::Network read_network() const;
  sim::Profile read_profile() const;
  void read_length(sim::Scenario& scenario) const;
  std::unique_ptr<sim::Objective> make_objective() const;

  CommandOptions options_;
  TrainOptions job_;
  JobOptions shared_;
  std::string network_ = "10gbe", links_, profile_, objective_ = "none", faults_;
  std::string time_, swarm_, trace_;
  std::string levels_ = "auto", graphs_ = "on";
  int workers_per_host_ = 1, dimension_ = 0, trace_workers_ = 16;
  double condition_ = 100, noise_ = 0.1, skew_ = 0, dirichlet_ = 0;
  double target_loss_ = 0;
  std::int64_t iterations_ = 0, batch_ = 0;
  std::chrono::nanoseconds observe_every_{0};
  std::vector<std::string> sweeps_;
};

}  // namespace skein
