#include "core/host_memory.h"

#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <iterator>

#include "core/parse_number.h"
#include "core/units.h"
#include "skein/error.h"

namespace skein {
namespace {

namespace fs = std::filesystem;

std::string contents(const fs::path& path) {
  std::ifstream in(path);
  return {std::istreambuf_iterator<char>(in), {}};
}

// The number that follows `name` in `text`, at the start of a line; of a file that holds nothing
// but a number, with an empty name.
std::optional<std::uint64_t> number_after(const std::string& text, const std::string& name) {
  std::size_t at = 0;
  while (at < text.size() && text.compare(at, name.size(), name) != 0) {
    at = text.find('\n', at);
    if (at == std::string::npos) return std::nullopt;
    ++at;
  }
  at = text.find_first_not_of(" \t", at + name.size());
  std::uint64_t value = 0;
  if (at == std::string::npos ||
      std::from_chars(text.data() + at, text.data() + text.size(), value).ec != std::errc())
    return std::nullopt;  // "max", say
  return value;
}

// The files of one version of control groups.
struct Names {
  const char *limit, *used, *reclaimable;
};

std::optional<std::uint64_t> left_in(const fs::path& group, const Names& names) {
  const auto limit = number_after(contents(group / names.limit), "");
  const auto used = number_after(contents(group / names.used), "");
  if (!limit || !used) return std::nullopt;
  const auto cache = number_after(contents(group / "memory.stat"), names.reclaimable).value_or(0);
  return *limit - std::min(*limit, *used - std::min(*used, cache));
}

// A group's limit holds for all below it.
std::optional<std::uint64_t> left_in_groups(const fs::path& hierarchy, fs::path group,
                                            const Names& names) {
  std::optional<std::uint64_t> least;
  for (;; group = group.parent_path()) {
    const auto left = left_in(hierarchy / group.relative_path(), names);
    if (left && (!least || *left < *least)) least = left;
    if (!group.has_relative_path()) return least;
  }
}

}  // namespace

std::optional<std::uint64_t> available_memory(const fs::path& root) {
  const std::string kernel = contents(root / "proc/meminfo");
  auto available = number_after(kernel, "MemAvailable:");
  if (available) *available = (*available + number_after(kernel, "SwapFree:").value_or(0)) * 1024;
  const auto limit_to = [&](std::optional<std::uint64_t> left) {
    if (left && (!available || *left < *available)) available = left;
  };
  std::ifstream groups(root / "proc/self/cgroup");
  for (std::string line; std::getline(groups, line);) {
    const std::size_t path = line.find(':', line.find(':') + 1);
    if (path == std::string::npos) continue;
    if (line.starts_with("0::"))
      limit_to(left_in_groups(root / "sys/fs/cgroup", line.substr(path + 1),
                              {"memory.max", "memory.current", "inactive_file "}));
    else if (line.find(":memory:") != std::string::npos)
      limit_to(left_in_groups(
          root / "sys/fs/cgroup/memory", line.substr(path + 1),
          {"memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file "}));
  }
  return available;
}

void require_memory(std::uint64_t bytes, const std::string& what, const fs::path& root) {
  const auto available = available_memory(root);
  if (available && bytes > *available)
    throw ConfigError(fmt::format("{} needs {} of memory, this host has {} left", what,
                                  print_bytes(static_cast<double>(bytes)),
                                  print_bytes(static_cast<double>(*available))));
}

}  // namespace skein
