#include "launch/logs.h"

#include <fcntl.h>
#include <fmt/format.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "skein/error.h"

namespace skein {

LogDirectory::LogDirectory(const std::string& path, const std::string& temporary_root)
    : path_(path), temporary_(path.empty()) {
  if (temporary_) {
    path_ = temporary_root + "/skein-XXXXXX";
    if (mkdtemp(path_.data()) == nullptr)
      throw ConfigError(fmt::format("cannot make a folder for logs in '{}': {}; set TMPDIR",
                                    temporary_root, std::strerror(errno)));
    return;
  }
  std::error_code code;
  std::filesystem::create_directories(path_, code);
  if (code)
    throw ConfigError(fmt::format("cannot make the log folder '{}': {}", path_, code.message()));
}

LogDirectory::~LogDirectory() {
  std::error_code ignored;
  if (temporary_) std::filesystem::remove_all(path_, ignored);
}

std::string LogDirectory::pattern() const { return path_ + "/rank-*.log"; }

std::string LogDirectory::file(int rank) const {
  return fmt::format("{}/rank-{}.log", path_, rank);
}

FileDescriptor LogDirectory::open(int rank) const {
  const std::string name = file(rank);
  FileDescriptor out(
      ::open(name.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_APPEND | O_CLOEXEC, 0644));
  if (!out.valid())
    throw ConfigError(fmt::format("cannot write the log '{}': {}", name, std::strerror(errno)));
  return out;
}

std::string LogDirectory::tail(int rank) const {
  constexpr std::streamoff kBytes = 4000;
  constexpr int kLines = 10;
  std::ifstream in(file(rank), std::ios::binary | std::ios::ate);
  if (!in) return "";
  const std::streamoff size = in.tellg();
  in.seekg(std::max<std::streamoff>(0, size - kBytes));
  std::string text{std::istreambuf_iterator<char>(in), {}};
  while (!text.empty() && text.back() == '\n') text.pop_back();
  std::size_t begin = text.size();
  for (int line = 0; line < kLines && begin != std::string::npos && begin > 0; ++line)
    begin = text.rfind('\n', begin - 1);
  return begin == std::string::npos || begin == 0 ? text : text.substr(begin + 1);
}

}  // namespace skein
