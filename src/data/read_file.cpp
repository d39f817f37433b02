#include "data/read_file.h"

#include <fmt/format.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>
#include <system_error>

#include "skein/error.h"

namespace skein {
namespace fs = std::filesystem;

std::vector<std::uint8_t> read_file(const fs::path& path, std::uint64_t most_bytes) {
  std::error_code code;
  const fs::file_status status = fs::status(path, code);
  if (status.type() == fs::file_type::not_found)
    throw ConfigError(fmt::format("{}: no such file", path.string()));
  if (code) throw ConfigError(fmt::format("{}: {}", path.string(), code.message()));
  if (status.type() != fs::file_type::regular)
    throw ConfigError(fmt::format("{}: expected a file, found something else", path.string()));
  const std::uint64_t size = fs::file_size(path, code);
  if (code) throw ConfigError(fmt::format("{}: {}", path.string(), code.message()));
  if (size > most_bytes)
    throw ConfigError(
        fmt::format("{}: {} bytes, expected at most {}", path.string(), size, most_bytes));

  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::fopen(path.c_str(), "rb"),
                                                             &std::fclose);
  if (file == nullptr)
    throw ConfigError(fmt::format("{}: {}", path.string(), std::strerror(errno)));
  std::vector<std::uint8_t> bytes(size);
  const std::size_t got = size == 0 ? 0 : std::fread(bytes.data(), 1, bytes.size(), file.get());
  if (got != bytes.size())
    throw ConfigError(fmt::format(
        "{}: reading stopped at byte {} of {}: {}", path.string(), got, bytes.size(),
        std::ferror(file.get()) != 0 ? std::strerror(errno) : "the file has become shorter"));
  return bytes;
}

void require_folder(const fs::path& path, const char* what) {
  std::error_code code;
  if (!fs::is_directory(path, code))
    throw ConfigError(fmt::format("{}: no such folder; expected one with {}", path.string(), what));
}

}  // namespace skein
