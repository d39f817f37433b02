#include "fabric/tcp/key_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstring>

#include "core/file_descriptor.h"

namespace skein::tcp {

std::string read_key_file(const std::string& path, std::size_t most, Readers readers,
                          const std::function<void(const std::string&)>& refuse) {
  const FileDescriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!file.valid()) refuse(fmt::format("cannot be read: {}", std::strerror(errno)));
  struct stat facts {};
  if (::fstat(file.get(), &facts) != 0 || !S_ISREG(facts.st_mode)) refuse("is not a file");
  if (readers == Readers::owner && (facts.st_mode & 077) != 0)
    refuse(fmt::format("may be read or written by others (mode {:o}): chmod 600 it",
                       facts.st_mode & 0777));
  std::string text(most + 1, '\0');
  const ssize_t got = ::pread(file.get(), text.data(), text.size(), 0);
  if (got < 0) refuse(fmt::format("cannot be read: {}", std::strerror(errno)));
  text.resize(static_cast<std::size_t>(got));
  if (text.size() > most) refuse(fmt::format("is longer than {} bytes", most));
  return text;
}

}  // namespace skein::tcp
