// A file of the user's as bytes.
#pragma once

#include <cstdint>
#include <filesystem>
#include <vector>

namespace skein {

// The whole file. ConfigError that names it when it is missing, no ordinary file, unreadable or
// larger than `most_bytes`.
std::vector<std::uint8_t> read_file(const std::filesystem::path& path,
                                    std::uint64_t most_bytes = std::uint64_t{1} << 34);

// ConfigError unless `path` is a folder; `what` says what it should hold.
void require_folder(const std::filesystem::path& path, const char* what);

}  // namespace skein
