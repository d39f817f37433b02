#include "fabric/tcp/secret.h"

#include <fmt/format.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>

#include <string_view>

#include "core/check.h"
#include "fabric/tcp/key_file.h"
#include "skein/error.h"

namespace skein::tcp {

Key read_secret(const std::string& path, const std::string& run) {
  const auto refuse = [&](const std::string& why) {
    throw ConfigError(fmt::format(
        "the run's secret in '{}' {}; a good one: (umask 077; head -c 32 /dev/urandom > FILE)",
        path, why));
  };
  SecretText file = read_key_file(path, kMostSecret, Readers::owner, refuse);
  std::string& secret = file.text();
  if (secret.ends_with('\n')) secret.pop_back();
  if (secret.size() < kLeastSecret)
    refuse(fmt::format("has {} bytes: expected at least {}", secret.size(), kLeastSecret));
  return derive_key(secret, run);
}

Key derive_key(const std::string& secret, const std::string& run) {
  const std::string purpose = "skein tcp, version 1: key of the workers' connections" + run;
  Key key;
  unsigned length = 0;
  const auto* text = reinterpret_cast<const unsigned char*>(purpose.data());
  const bool made = ::HMAC(EVP_sha256(), secret.data(), static_cast<int>(secret.size()), text,
                           purpose.size(), key.data(), &length) != nullptr;
  SKEIN_CHECK(made && length == key.size(), "a key of {} bytes", length);
  return key;
}

}  // namespace skein::tcp
