// Reads the options of `skein train`.
#pragma once

#include <optional>
#include <string>

#include "cli/host_options.h"
#include "cli/job_options.h"
#include "cli/network_options.h"
#include "cli/options.h"
#include "cli/restarts.h"
#include "train/options.h"

namespace skein {

// Declares every option of the job and checks what can be checked without torch.
class TrainOptionReader {
 public:
  explicit TrainOptionReader(CLI::App& command);

  // The job, after the command line was parsed, of a launcher or of the worker that `placement`
  // says. Makes the folder --out. ConfigError for what does not fit together, with the option, the
  // value and what is allowed.
  TrainOptions read(const std::optional<Placement>& placement);

  const HostOptions& hosts() const { return hosts_; }           // of a launcher
  const RestartOptions& restarts() const { return restarts_; }  // likewise

 private:
  void declare_job();
  void declare_workers();
  void declare_computation();
  void declare_length();
  void declare_optimizer();
  void declare_files();
  void declare_emulation();
  void declare_reports();

  void read_hosts(const std::optional<Placement>& placement);
  void read_device(bool launches);
  void fit_to(int size, const std::string& launcher);
  void check_choices() const;
  void check_restarts(const std::optional<Placement>& placement);
  void find_run();
  void check_files(bool as_worker) const;
  void check_page(const std::optional<Placement>& placement);

  CommandOptions options_;
  NetworkOptions network_;
  HostOptions hosts_;
  RestartOptions restarts_;
  TrainOptions job_;
  JobOptions shared_;
  bool no_decay_1d_ = false;
};

}  // namespace skein
