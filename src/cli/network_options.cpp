#include "cli/network_options.h"

#include <fmt/format.h>

#include "runtime/fabrics.h"
#include "skein/error.h"

namespace skein {

void declare_certificates(CommandOptions& options, Credentials& given) {
  options.text("--tls-cert", given.cert, "FILE",
               "tcp: a certificate for each worker in place of a secret (else SKEIN_TLS_CERT)");
  options.text("--tls-key", given.key, "FILE", "tcp: its key (else SKEIN_TLS_KEY)");
  options.text("--tls-ca", given.ca, "FILE",
               "tcp: the authority whose certificates are trusted (else SKEIN_TLS_CA)");
}

void hand_over(const Credentials& credentials, LaunchOptions& launch) {
  launch.secret = !credentials.certificates();
  if (launch.secret) return;
  launch.extra_env["SKEIN_TLS_CERT"] = credentials.cert;
  launch.extra_env["SKEIN_TLS_KEY"] = credentials.key;
  launch.extra_env["SKEIN_TLS_CA"] = credentials.ca;
}

void NetworkOptions::declare(CommandOptions& options) {
  options.text("--fabric", fabric, "NAME", "what joins the workers: " + describe_fabrics());
  options.text("--rendezvous", rendezvous, "HOST:PORT",
               "tcp: where rank 0 listens (else what the launcher says; --hosts: HOST will do)");
  options.text("--secret", given.secret, "FILE",
               "tcp: what only the workers of the run know (else SKEIN_SECRET_FILE)");
  declare_certificates(options, given);
  options.choice("--encrypt", encrypt, {"on", "off"},
                 "tcp: off sends in clear between workers that have shown who they are");
  options.choice("--levels", levels, {"auto", "one"},
                 "tcp: auto sums inside hosts and then between them; one over all workers");
}

void NetworkOptions::check_start(int workers) const {
  if (fabric == "mpi" && workers > 1)
    throw ConfigError(
        fmt::format("--fabric mpi: MPI's own launcher starts the workers; expected mpirun -n {} "
                    "skein … without --workers, or --fabric local",
                    workers));
}

void NetworkOptions::check(const CommandOptions& options) const {
  try {
    check_fabric(fabric);
  } catch (const ConfigError& error) {
    throw ConfigError(fmt::format("--{}", error.what()));
  }
  if (between_hosts()) {
    credentials();
    return;
  }
  for (const char* name :
       {"--rendezvous", "--secret", "--tls-cert", "--tls-key", "--tls-ca", "--encrypt", "--levels"})
    if (options.given(name))
      throw ConfigError(
          fmt::format("{}: --fabric {} does not use it; expected --fabric tcp", name, fabric));
}

}  // namespace skein
