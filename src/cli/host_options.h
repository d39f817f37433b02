// The options of commands that start workers on several hosts.
#pragma once

#include <string>
#include <vector>

#include "cli/options.h"
#include "launch/environment.h"
#include "launch/launcher.h"
#include "runtime/credentials.h"

namespace skein {

class HostOptions {
 public:
  void declare(CommandOptions& options);

  bool given(const CommandOptions& options) const;  // --hosts or --hostfile

  // What joins the workers where the user has not said so; ConfigError for what joins no hosts.
  void choose_fabric(const CommandOptions& options, std::string& fabric) const;

  // To be called by a launcher. Reads the hosts. ConfigError for what does not fit together.
  // `secret` is the file that the user named, if any: only commands that are printed have it.
  void read(const CommandOptions& options, const std::string& secret);
  int workers() const { return total_workers(hosts_); }  // 0: none were named

  // ConfigError if another launcher than Skein's has started this worker.
  void check_worker(const CommandOptions& options, const Placement& placement) const;

  // Makes `launch` one on these hosts. `own_program`: the workers are copies of this program.
  void place(LaunchOptions& launch, const std::string& rendezvous, bool own_program) const;

  // With --print-commands, prints what to type on each host, where `words` is the program with its
  // arguments. True when it did: nothing is to be started then.
  bool print_commands(const std::vector<std::string>& words, const std::string& rendezvous,
                      const Credentials& credentials) const;

 private:
  std::string list_, file_, ssh_, remote_skein_;
  std::vector<std::string> variables_;
  bool print_commands_ = false, ssh_given_ = false;
  std::vector<Host> hosts_;
};

// The arguments of a command without the options `named` and their values, and without `flags`.
std::vector<std::string> without_options(const std::vector<std::string>& arguments,
                                         const std::vector<std::string>& named,
                                         const std::vector<std::string>& flags);

// The arguments that a worker of `train` or `bench fabric` is started with by hand. It has the
// certificates or the secret that the user named, or else a secret in run.secret.
std::vector<std::string> worker_arguments(const Invocation& invocation,
                                          const Credentials& credentials);

}  // namespace skein
