// A user's own secret, for runs whose launcher hands none to the workers, though they share a home.
#pragma once

#include <string>

#include "launch/environment.h"

namespace skein {

// The path of HOME/.skein/secret: 32 random bytes that only their owner can read. Makes it where it
// is missing; workers of several hosts may do so at once, and find the same. It stays for later
// runs. Throws ConfigError, with the reason, when it cannot be made.
std::string own_secret_file(const Getenv& getenv);

}  // namespace skein
