#include "fabric/tcp/key_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "core/file_descriptor.h"

namespace skein::tcp {

// Nothing is read from it again, which must not make the compiler leave it as it is.
SecretText::~SecretText() { ::explicit_bzero(text_.data(), text_.size()); }

SecretText read_key_file(const std::string& path, std::size_t most, Readers readers,
                         const std::function<void(const std::string&)>& refuse) {
  const FileDescriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!file.valid()) refuse(fmt::format("cannot be read: {}", std::strerror(errno)));
  struct stat facts {};
  if (::fstat(file.get(), &facts) != 0 || !S_ISREG(facts.st_mode)) refuse("is not a file");
  if (readers == Readers::owner && (facts.st_mode & 077) != 0)
    refuse(fmt::format("may be read or written by others (mode {:o}): chmod 600 it",
                       facts.st_mode & 0777));
  if (readers == Readers::owner && facts.st_uid != ::geteuid() && facts.st_uid != 0)
    refuse(
        fmt::format("belongs to another user (uid {}), who may read and change it: expected a "
                    "file of uid {}",
                    facts.st_uid, ::geteuid()));
  SecretText out(most + 1);
  std::string& text = out.text();
  const ssize_t got = ::pread(file.get(), text.data(), text.size(), 0);
  if (got < 0) refuse(fmt::format("cannot be read: {}", std::strerror(errno)));
  text.resize(static_cast<std::size_t>(got));
  if (text.size() > most) refuse(fmt::format("is longer than {} bytes", most));
  return out;
}

}  // namespace skein::tcp
