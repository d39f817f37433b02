// What a worker shows others over TCP: a secret or certificates, by options or by the environment.
#pragma once

#include <string>

#include "launch/environment.h"

namespace skein {

// Paths of files. Either the secret is set, or the other three are.
struct Credentials {
  std::string secret;
  std::string cert, key, ca;

  bool certificates() const { return !cert.empty(); }
};

// What `given` says, whose parts may be empty, or else SKEIN_SECRET_FILE, SKEIN_TLS_CERT,
// SKEIN_TLS_KEY and SKEIN_TLS_CA: options win over the environment. All is empty when neither says
// anything. Throws ConfigError for certificates without one of the three, which it names, and for
// both kinds at once.
Credentials find_credentials(const Credentials& given, const Getenv& getenv);

}  // namespace skein
