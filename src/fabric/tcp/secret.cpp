#include "fabric/tcp/secret.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstring>
#include <string_view>

#include "core/check.h"
#include "core/file_descriptor.h"
#include "skein/error.h"

namespace skein::tcp {

Key read_secret(const std::string& path) {
  const auto refuse = [&](const std::string& why) {
    throw ConfigError(fmt::format(
        "the run's secret in '{}' {}; a good one: (umask 077; head -c 32 /dev/urandom > FILE)",
        path, why));
  };
  const FileDescriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!file.valid()) refuse(fmt::format("cannot be read: {}", std::strerror(errno)));
  struct stat facts {};
  if (::fstat(file.get(), &facts) != 0 || !S_ISREG(facts.st_mode)) refuse("is not a file");
  if ((facts.st_mode & 077) != 0)
    refuse(fmt::format("may be read or written by others (mode {:o}): chmod 600 it",
                       facts.st_mode & 0777));
  std::string secret(kMostSecret + 1, '\0');
  const ssize_t got = ::pread(file.get(), secret.data(), secret.size(), 0);
  if (got < 0) refuse(fmt::format("cannot be read: {}", std::strerror(errno)));
  secret.resize(static_cast<std::size_t>(got));
  if (secret.size() > kMostSecret) refuse(fmt::format("is longer than {} bytes", kMostSecret));
  if (secret.ends_with('\n')) secret.pop_back();
  if (secret.size() < kLeastSecret)
    refuse(fmt::format("has {} bytes: expected at least {}", secret.size(), kLeastSecret));
  return derive_key(secret);
}

Key derive_key(const std::string& secret) {
  constexpr std::string_view kPurpose = "skein tcp, version 1: key of the workers' connections";
  Key key;
  unsigned length = 0;
  const auto* text = reinterpret_cast<const unsigned char*>(kPurpose.data());
  const bool made = ::HMAC(EVP_sha256(), secret.data(), static_cast<int>(secret.size()), text,
                           kPurpose.size(), key.data(), &length) != nullptr;
  SKEIN_CHECK(made && length == key.size(), "a key of {} bytes", length);
  return key;
}

}  // namespace skein::tcp
