#include "runtime/credentials.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <array>
#include <vector>

#include "skein/error.h"

namespace skein {
namespace {

struct Part {
  const char* option;
  const char* variable;
  std::string Credentials::*path;
};

const std::array<Part, 3> kCertificateParts{{{"--tls-cert", "SKEIN_TLS_CERT", &Credentials::cert},
                                             {"--tls-key", "SKEIN_TLS_KEY", &Credentials::key},
                                             {"--tls-ca", "SKEIN_TLS_CA", &Credentials::ca}}};

bool any(const Credentials& of) {
  for (const Part& part : kCertificateParts)
    if (!(of.*part.path).empty()) return true;
  return false;
}

Credentials from(const Getenv& getenv) {
  const auto value = [&](const char* name) {
    const char* text = getenv(name);
    return std::string(text ? text : "");
  };
  Credentials out;
  out.secret = value("SKEIN_SECRET_FILE");
  for (const Part& part : kCertificateParts) out.*part.path = value(part.variable);
  return out;
}

void check_one_kind(const Credentials& of, const char* secret, bool options) {
  if (of.secret.empty() || !any(of)) return;
  for (const Part& part : kCertificateParts)
    if (!(of.*part.path).empty())
      throw ConfigError(fmt::format("{} and {}: workers show a secret or certificates, not both",
                                    secret, options ? part.option : part.variable));
}

}  // namespace

Credentials find_credentials(const Credentials& given, const Getenv& getenv) {
  check_one_kind(given, "--secret", true);
  if (!given.secret.empty()) return given;
  const Credentials around = from(getenv);
  if (!any(given)) check_one_kind(around, "SKEIN_SECRET_FILE", false);
  Credentials out = given;
  std::vector<std::string> missing;
  for (const Part& part : kCertificateParts) {
    if ((out.*part.path).empty()) out.*part.path = around.*part.path;
    if ((out.*part.path).empty())
      missing.push_back(fmt::format("{} (or {})", part.option, part.variable));
  }
  if (any(out) && !missing.empty())
    throw ConfigError(
        fmt::format("certificates need --tls-cert, --tls-key and --tls-ca: expected {} too",
                    fmt::join(missing, " and ")));
  if (!any(out)) out.secret = around.secret;
  return out;
}

}  // namespace skein
