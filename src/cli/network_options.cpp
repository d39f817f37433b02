#include "cli/network_options.h"

#include <fmt/format.h>

#include "runtime/fabrics.h"
#include "skein/error.h"

namespace skein {

void NetworkOptions::declare(CommandOptions& options) {
  options.text("--fabric", fabric, "NAME", "what joins the workers: " + describe_fabrics());
  options.text("--rendezvous", rendezvous, "HOST:PORT",
               "tcp: where rank 0 listens (else what the launcher says; --hosts: HOST will do)");
  options.text("--secret", secret_file, "FILE",
               "tcp: what only the workers of the run know (else SKEIN_SECRET_FILE)");
  options.choice("--encrypt", encrypt, {"on", "off"},
                 "tcp: off sends in clear between workers that have shown the secret");
  options.choice("--levels", levels, {"auto", "one"},
                 "tcp: auto sums inside hosts and then between them; one over all workers");
}

void NetworkOptions::check(const CommandOptions& options) const {
  try {
    check_fabric(fabric);
  } catch (const ConfigError& error) {
    throw ConfigError(fmt::format("--{}", error.what()));
  }
  if (between_hosts()) return;
  for (const char* name : {"--rendezvous", "--secret", "--encrypt", "--levels"})
    if (options.given(name))
      throw ConfigError(
          fmt::format("{}: --fabric {} does not use it; expected --fabric tcp", name, fabric));
}

}  // namespace skein
