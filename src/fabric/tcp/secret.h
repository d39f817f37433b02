// What the workers of a run know and nobody else does.
#pragma once

#include <string.h>

#include <array>
#include <cstddef>
#include <string>

namespace skein::tcp {

// The key of a run's connections, made from its secret. Overwritten when it goes.
struct Key : std::array<unsigned char, 32> {
  ~Key() { ::explicit_bzero(data(), size()); }
};

inline constexpr std::size_t kLeastSecret = 16, kMostSecret = 4096;  // bytes of the file

// Reads the secret in `path`, without one line break at its end. Throws ConfigError when it cannot
// be read, is too short or too long, or when others than its owner may read it.
Key read_secret(const std::string& path, const std::string& run = "");

// The key that a secret makes, one for each name of a run.
Key derive_key(const std::string& secret, const std::string& run = "");

}  // namespace skein::tcp
