// Reads the options of `skein train`.
#pragma once

#include <string>

#include "cli/job_options.h"
#include "cli/network_options.h"
#include "cli/options.h"
#include "train/options.h"

namespace skein {

// Declares every option of the job and checks what can be checked without torch.
class TrainOptionReader {
 public:
  explicit TrainOptionReader(CLI::App& command);

  // The job, after the command line was parsed. Makes the folder --out. ConfigError for what does
  // not fit together, with the option, the value and what is allowed.
  TrainOptions read();

  // Fails unless the job fits a run of `size` workers, which `launcher` has started. To be called
  // before anything else uses the options of a worker.
  void fit_to(TrainOptions& options, int size, const std::string& launcher) const;

 private:
  void declare_job();
  void declare_workers();
  void declare_length();
  void declare_optimizer();
  void declare_files();
  void declare_emulation();
  void declare_reports();

  void check_choices() const;
  void check_files() const;

  CommandOptions options_;
  NetworkOptions network_;
  TrainOptions job_;
  JobOptions shared_;
  bool no_decay_1d_ = false;
};

}  // namespace skein
