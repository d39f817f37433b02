#include "runtime/own_secret.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <pwd.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "core/file_descriptor.h"
#include "launch/meeting_place.h"
#include "skein/error.h"

namespace skein {
namespace {

std::string home_of_user(const Getenv& getenv) {
  if (const char* home = getenv("HOME"); home != nullptr && *home != '\0') return home;
  const passwd* user = ::getpwuid(::geteuid());  // NOLINT(concurrency-mt-unsafe): before any thread
  return user != nullptr ? user->pw_dir : "";
}

[[noreturn]] void refuse(const std::string& path) {
  throw ConfigError(
      fmt::format("the tcp fabric needs a secret that all workers of the run know, and '{}' cannot "
                  "be made: {}; "
                  "expected --secret FILE or SKEIN_SECRET_FILE",
                  path, std::strerror(errno)));
}

// A file that nobody sees under its name before it is whole.
void make_secret(const std::string& path) {
  std::string temporary = path + ".XXXXXX";
  const FileDescriptor file(::mkostemp(temporary.data(), O_CLOEXEC));
  if (!file.valid()) refuse(path);
  std::string secret = fresh_secret();
  const bool written =
      ::fchmod(file.get(), 0600) == 0 &&
      ::write(file.get(), secret.data(), secret.size()) == static_cast<ssize_t>(secret.size()) &&
      ::fsync(file.get()) == 0;
  const int why_not = errno;
  ::explicit_bzero(secret.data(), secret.size());
  errno = why_not;
  // A link, and not a rename: of several that come at once the first decides for all.
  const bool named = written && (::link(temporary.c_str(), path.c_str()) == 0 || errno == EEXIST);
  const int why = errno;
  ::unlink(temporary.c_str());
  errno = why;
  if (!named) refuse(path);
}

}  // namespace

std::string own_secret_file(const Getenv& getenv) {
  const std::string folder = home_of_user(getenv) + "/.skein";
  std::string path = folder + "/secret";
  if (::mkdir(folder.c_str(), 0700) != 0 && errno != EEXIST) refuse(path);
  if (::access(path.c_str(), F_OK) != 0) make_secret(path);
  return path;
}

}  // namespace skein
