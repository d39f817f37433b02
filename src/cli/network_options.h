// The options of fabrics between hosts, for commands whose workers may use one.
#pragma once

#include <string>

#include "cli/options.h"
#include "launch/launcher.h"
#include "runtime/credentials.h"

namespace skein {

// --tls-cert, --tls-key and --tls-ca.
void declare_certificates(CommandOptions& options, Credentials& given);

// Has the workers show the certificates, where there are, or else a secret that the launcher makes.
void hand_over(const Credentials& credentials, LaunchOptions& launch);

struct NetworkOptions {
  std::string fabric = "local", rendezvous, encrypt = "on", levels = "auto";
  Credentials given;

  void declare(CommandOptions& options);

  // Throws ConfigError for a fabric that is not there, and for options that it has no use for or
  // that do not go together.
  void check(const CommandOptions& options) const;

  // Throws ConfigError where `workers` cannot be started here for the fabric.
  void check_start(int workers) const;

  // What was given, or else the environment says.
  Credentials credentials() const { return find_credentials(given, process_environment); }

  // Whether it may join workers of several hosts, who need a place to meet and know each other by
  // what they show.
  bool between_hosts() const { return fabric == "tcp" || fabric == "nccl" || fabric == "auto"; }
};

}  // namespace skein
