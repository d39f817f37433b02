#include "keep/checkpoint_files.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>

#include "core/atomic_file.h"
#include "keep/checkpoint_state.h"
#include "skein/error.h"

namespace skein {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

constexpr const char* kChecksums = "checksums.json";
constexpr const char* kState = "state.json";
constexpr const char* kUnfinished = "unfinished-";

std::map<std::string, FileSum> read_checksums(const fs::path& path) {
  std::map<std::string, FileSum> files;
  try {
    std::ifstream in(path);
    const Json json = Json::parse(in);
    for (const auto& [name, entry] : json.items()) {
      if (fs::path(name).filename() != name) throw Error("a name that is a path");
      files[name] = {entry.at("bytes").get<std::uint64_t>(),
                     entry.at("crc32c").get<std::uint32_t>()};
    }
  } catch (const std::exception&) {
    throw Error(fmt::format("{} is damaged", path.string()));
  }
  return files;
}

void check_file(const fs::path& path, const FileSum& expected) {
  std::error_code code;
  const auto bytes = fs::file_size(path, code);
  if (code) throw Error(fmt::format("{}: {}", path.string(), code.message()));
  if (bytes != expected.bytes)
    throw Error(fmt::format("{} has {} bytes, expected {}", path.string(), bytes, expected.bytes));
  const FileSum found = checksum_of(path);
  if (found != expected)
    throw Error(fmt::format("{} is damaged: its checksum is {:08x}, expected {:08x}", path.string(),
                            found.crc32c, expected.crc32c));
}

}  // namespace

std::int64_t samples_of(const fs::path& checkpoint) {
  const std::string name = checkpoint.filename().string();
  std::int64_t samples = 0;
  const auto [end, code] = std::from_chars(name.data(), name.data() + name.size(), samples);
  return code == std::errc() && end == name.data() + name.size() ? samples : -1;
}

std::vector<fs::path> numbered_in(const fs::path& folder) {
  std::vector<fs::path> found;
  std::error_code none;
  for (const auto& entry : fs::directory_iterator(folder, none))
    if (entry.is_directory() && samples_of(entry.path()) >= 0) found.push_back(entry.path());
  std::sort(found.begin(), found.end(),
            [](const auto& a, const auto& b) { return samples_of(a) < samples_of(b); });
  return found;
}

std::vector<fs::path> checkpoints_in(const fs::path& out) {
  return numbered_in(out / "checkpoints");
}

// A program's own folder may have one called "checkpoints", too.
fs::path checkpoint_folder(const fs::path& folder) {
  std::error_code none;
  for (const fs::path& each : numbered_in(folder))
    if (fs::exists(each / "state.json", none) || fs::exists(each / kChecksums, none)) return folder;
  const fs::path inner = folder / "checkpoints";
  return fs::is_directory(inner, none) ? inner : folder;
}

fs::path run_folder_of(const fs::path& resume) {
  if (!fs::exists(resume / "state.json")) return resume;
  const fs::path checkpoints = fs::canonical(resume).parent_path();
  return checkpoints.filename() == "checkpoints" ? checkpoints.parent_path() : fs::path();
}

void write_checksums(const fs::path& checkpoint, const std::map<std::string, FileSum>& files) {
  Json json;
  for (const auto& [name, sum] : files) json[name] = {{"bytes", sum.bytes}, {"crc32c", sum.crc32c}};
  write_whole(checkpoint / kChecksums, json.dump(2) + "\n");
}

Inspection inspect(const fs::path& checkpoint, int part, int parts) {
  Inspection found;
  const auto look = [&](const std::function<void()>& at) {
    try {
      at();
    } catch (const std::exception& error) {
      found.damage += (found.damage.empty() ? "" : "; ") + std::string(error.what());
    }
  };
  std::error_code none;
  found.checksums = fs::exists(checkpoint / kChecksums, none);
  std::map<std::string, FileSum> files;
  if (found.checksums) look([&] { files = read_checksums(checkpoint / kChecksums); });
  int file = 0;
  for (const auto& named : files)
    if (file++ % parts == part && named.first != kState)
      look([&] { check_file(checkpoint / named.first, named.second); });
  // What is wrong with it is said once.
  if (part == 0)
    look([&] {
      read_state(checkpoint);
      if (files.contains(kState)) check_file(checkpoint / kState, files.at(kState));
    });
  return found;
}

std::vector<std::string> set_aside_later(const fs::path& folder, std::int64_t samples) {
  std::vector<std::string> names;
  for (const fs::path& each : numbered_in(folder)) {
    if (samples_of(each) <= samples) continue;
    names.push_back(each.filename().string());
    const fs::path aside = each.parent_path() / ("set-aside-" + names.back());
    fs::remove_all(aside);
    fs::rename(each, aside);
  }
  return names;
}

void remove_older(const fs::path& folder, int keep) {
  const auto all = numbered_in(folder);
  for (std::size_t i = 0; i + static_cast<std::size_t>(keep) < all.size(); ++i) {
    const fs::path going = folder / (kUnfinished + all[i].filename().string());
    fs::remove_all(going);
    fs::rename(all[i], going);
    fs::remove_all(going);
  }
}

void remove_unfinished(const fs::path& folder) {
  std::vector<fs::path> found;
  std::error_code none;
  for (const auto& entry : fs::directory_iterator(folder, none))
    if (entry.path().filename().string().starts_with(kUnfinished)) found.push_back(entry.path());
  for (const fs::path& each : found) fs::remove_all(each);
}

}  // namespace skein
