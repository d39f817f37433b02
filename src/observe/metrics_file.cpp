#include "observe/metrics_file.h"

#include <fcntl.h>
#include <fmt/format.h>

#include <cerrno>
#include <cstring>

#include "observe/json_text.h"
#include "skein/error.h"

namespace skein {

MetricsFile::MetricsFile(const std::filesystem::path& path)
    : path_(path), file_(::open(path.c_str(), O_RDWR | O_APPEND | O_CREAT | O_CLOEXEC, 0666)) {
  if (!file_.valid())
    throw Error(fmt::format("cannot open {}: {}", path.string(), std::strerror(errno)));
  const off_t end = ::lseek(file_.get(), 0, SEEK_END);
  char last = '\n';
  if (end > 0 && ::pread(file_.get(), &last, 1, end - 1) == 1 && last != '\n' &&
      ::write(file_.get(), "\n", 1) != 1)
    throw Error(fmt::format("cannot write {}: {}", path.string(), std::strerror(errno)));
}

void MetricsFile::write(const nlohmann::json& line) {
  if (!file_.valid()) return;
  const std::string text = text_of(line) + "\n";
  const ssize_t written = ::write(file_.get(), text.data(), text.size());
  if (written == static_cast<ssize_t>(text.size())) return;
  throw Error(fmt::format("cannot write {}: {}", path_.string(),
                          written < 0 ? std::strerror(errno) : "the disk is full"));
}

}  // namespace skein
