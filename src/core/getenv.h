// Environment variables, as something that a test can replace.
#pragma once

#include <cstdlib>
#include <functional>

namespace skein {

// Looks up an environment variable: its value, or nullptr when it is not set. Injected, so that a
// test needs no environment. A variable set to nothing counts as not set.
using Getenv = std::function<const char*(const char*)>;

// The environment of this process.
inline const char* process_environment(const char* name) { return std::getenv(name); }

}  // namespace skein
