#include "launch/logs.h"

#include <fcntl.h>
#include <fmt/format.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <vector>

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
  put_earlier_ones_aside();
}

// They tell why the run failed that is now resumed.
void LogDirectory::put_earlier_ones_aside() const {
  namespace fs = std::filesystem;
  std::vector<fs::path> logs;
  bool worth_it = false;
  try {
    for (const auto& entry : fs::directory_iterator(path_)) {
      const std::string name = entry.path().filename();
      if (!name.starts_with("rank-") || !name.ends_with(".log") || !entry.is_regular_file())
        continue;
      logs.push_back(entry.path());
      worth_it |= entry.file_size() > 0;
    }
    if (!worth_it) return;
    int number = 1;
    while (!fs::create_directory(fmt::format("{}/earlier-{}", path_, number))) ++number;
    for (const fs::path& log : logs)
      fs::rename(log, fmt::format("{}/earlier-{}/{}", path_, number, log.filename().string()));
  } catch (const fs::filesystem_error& error) {
    throw ConfigError(fmt::format("cannot put the logs of an earlier run in '{}' aside: {}", path_,
                                  error.code().message()));
  }
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
