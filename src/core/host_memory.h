// How much memory this process can still have.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

namespace skein {

// Bytes that new data can take without anything being killed for it: what the kernel says is
// available, swap included, or what the limits of this process's control groups leave, if that is
// less. Nullopt where nobody says. `root` is where /proc and /sys lie.
std::optional<std::uint64_t> available_memory(const std::filesystem::path& root = "/");

// Throws ConfigError, with what is needed and what there is, where `bytes` of `what` are more than
// available_memory().
void require_memory(std::uint64_t bytes, const std::string& what,
                    const std::filesystem::path& root = "/");

}  // namespace skein
