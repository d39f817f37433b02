#include "core/check.h"

#include <cstdio>
#include <cstdlib>

namespace skein::detail {

void check_failed(const char* expression, const char* file, int line, const std::string& message) {
  std::fprintf(stderr, "skein: broken invariant: %s (%s) at %s:%d\n", message.c_str(), expression,
               file, line);
  std::fflush(stderr);
  std::abort();
}

}  // namespace skein::detail
