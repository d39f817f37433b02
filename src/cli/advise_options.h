// Reads the options of `skein advise`.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "advise/advice.h"
#include "cli/host_options.h"
#include "cli/measure_cluster.h"
#include "cli/network_options.h"
#include "cli/options.h"
#include "sim/scenario.h"
#include "train/virtual_cluster.h"

namespace skein {

// The cluster is described by the options of `skein simulate`, which reads them, too: they are
// handed to its reader as they were typed.
class AdviseOptionReader {
 public:
  explicit AdviseOptionReader(CLI::App& command);

  // To be called once, when the command line was parsed. ConfigError for what does not fit
  // together.
  void read();

  // Whether workers are to be started on hosts to measure them.
  bool on_hosts() const { return hosts_.given(options_); }
  bool measures_model() const { return profile_.empty(); }

  // `profile`: that of a file or a name, or measured. `measured`: of machines, or none.
  sim::Scenario cluster(const std::string& profile,
                        const std::optional<MeasuredCluster>& measured) const;
  advise::Effort effort(const sim::Scenario& cluster) const;

  // The options of `skein train` for this job on this cluster, but for the strategy's. With
  // --emulate-link, -latency or -step the cluster is an emulated one and the command emulates it.
  std::vector<std::string> train_options(const sim::Scenario& cluster) const;

  CommandOptions& options() { return options_; }
  const CommandOptions& options() const { return options_; }
  const ProfileOptions& what_is_measured() const { return measured_model_; }
  const std::string& profile() const { return profile_; }
  const std::string& profile_file() const { return save_profile_; }
  const std::string& map_file() const { return map_; }
  HostOptions& hosts() { return hosts_; }
  NetworkOptions& network() { return network_; }

 private:
  void declare_model();
  void declare_cluster();
  void declare_answer();
  void forwarded(const std::string& name, const std::string& kind, const std::string& help);
  void refuse_together(const std::vector<std::string>& names, const std::string& why) const;
  bool emulated() const;

  CLI::App& command_;
  CommandOptions options_;
  ProfileOptions measured_model_;
  HostOptions hosts_;
  NetworkOptions network_;
  std::vector<std::string> forwarded_;  // names of options of `skein simulate`
  std::vector<std::string> sets_;
  std::string ignored_;  // behind the forwarded options
  std::string profile_, map_, save_profile_;
  double margin_ = 6;
  int steps_ = 0;
  bool quick_ = false;
};

}  // namespace skein
