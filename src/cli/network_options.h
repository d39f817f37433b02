// The options of fabrics between hosts, for commands whose workers may use one.
#pragma once

#include <string>

#include "cli/options.h"

namespace skein {

struct NetworkOptions {
  std::string fabric = "local", rendezvous, secret_file, encrypt = "on", levels = "auto";

  void declare(CommandOptions& options);

  // Throws ConfigError for a fabric that is not there, and for options that it has no use for.
  void check(const CommandOptions& options) const;

  // Whether workers that are started here need a place to meet.
  bool between_hosts() const { return fabric == "tcp"; }
};

}  // namespace skein
