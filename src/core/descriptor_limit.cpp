#include "core/descriptor_limit.h"

#include <fmt/format.h>
#include <sys/resource.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <iterator>
#include <system_error>

#include "skein/error.h"

namespace skein {
namespace {

constexpr rlim_t kMostRaised = 65536;  // some programs look at every number up to the limit

rlimit descriptor_limit() {
  rlimit out{};
  if (::getrlimit(RLIMIT_NOFILE, &out) != 0) out.rlim_cur = out.rlim_max = RLIM_INFINITY;
  return out;
}

std::int64_t open_now() {
  constexpr std::int64_t kGuess = 64;  // where there is no /proc
  std::error_code code;
  std::filesystem::directory_iterator each("/proc/self/fd", code);
  if (code) return kGuess;
  return std::distance(begin(each), end(each)) - 1;  // without the iterator's own
}

std::string how_to_raise(std::int64_t number) {
  return fmt::format(
      "expected more: `ulimit -n {}` before the start, and where that is refused, as root: nofile "
      "in /etc/security/limits.conf, LimitNOFILE= of a systemd unit, or docker run --ulimit "
      "nofile={}",
      number, number);
}

}  // namespace

void need_descriptors(std::int64_t more, const std::string& who) {
  rlimit limit = descriptor_limit();
  const auto need = static_cast<rlim_t>(open_now() + more);
  const rlim_t wanted = std::min(limit.rlim_max, std::max(kMostRaised, need));
  if (limit.rlim_cur < wanted) {
    limit.rlim_cur = wanted;
    ::setrlimit(RLIMIT_NOFILE, &limit);
    limit = descriptor_limit();
  }
  if (limit.rlim_cur >= need) return;
  throw ConfigError(
      fmt::format("{} needs {} open files and sockets, and this process may have {}: {}", who, need,
                  limit.rlim_cur, how_to_raise(static_cast<std::int64_t>(need))));
}

std::string system_error_text(int code) {
  std::string out = std::strerror(code);
  if (code == EMFILE) {
    const auto limit = static_cast<std::int64_t>(descriptor_limit().rlim_cur);
    out += fmt::format(" (this process may have {}; {})", limit, how_to_raise(4 * limit));
  } else if (code == ENFILE) {
    out += " (on this host, in all processes together: see /proc/sys/fs/file-max)";
  }
  return out;
}

}  // namespace skein
