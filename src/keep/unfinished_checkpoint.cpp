#include "keep/unfinished_checkpoint.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>
#include <thread>
#include <utility>

#include "core/atomic_file.h"
#include "keep/checkpoint_files.h"
#include "skein/error.h"

namespace skein {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;
using namespace std::chrono_literals;

constexpr Duration kFirstPause = 500us, kLongestPause = 50ms, kMoment = 1s;

std::string done_name(int rank) { return fmt::format("rank-{}.done", rank); }

// By rename, but not to the disk: when it is there the leader may give the folder another name.
void put(const fs::path& path, const std::string& text) {
  fs::path temporary = path;
  temporary += ".tmp";
  std::ofstream out(temporary);
  out << text;
  out.close();
  if (!out) throw Error(fmt::format("cannot write '{}'", path.string()));
  fs::rename(temporary, path);
}

FileSums read_done(const fs::path& path, int rank) {
  std::ifstream in(path);
  const Json json = Json::parse(in, nullptr, false);
  if (!json.is_object())
    throw Error(fmt::format("{} cannot be read, or is damaged", path.string()));
  if (json.contains("failed"))
    throw Error(fmt::format("rank {}: {}", rank, json["failed"].get<std::string>()));
  FileSums files;
  for (const auto& [name, entry] : json["files"].items())
    files[name] = {entry.at("bytes").get<std::uint64_t>(), entry.at("crc32c").get<std::uint32_t>()};
  return files;
}

// What is in a folder: it changes as long as somebody writes there. Listed, and not asked for by
// name: a network file system remembers for long that a name was not there.
std::map<std::string, std::uintmax_t> contents_of(const fs::path& folder) {
  std::map<std::string, std::uintmax_t> sizes;
  std::error_code none;
  for (const auto& entry : fs::directory_iterator(folder, none))
    sizes[entry.path().filename().string()] = entry.file_size(none);
  return sizes;
}

}  // namespace

UnfinishedCheckpoint::UnfinishedCheckpoint(fs::path folder, std::string name)
    : folder_(std::move(folder)),
      name_(std::move(name)),
      path_(folder_ / ("unfinished-" + name_)) {}

void UnfinishedCheckpoint::begin() const {
  remove_unfinished(folder_);
  fs::create_directories(path_);
}

void UnfinishedCheckpoint::done(int rank, const FileSums& files) const {
  Json json{{"files", Json::object()}};
  for (const auto& [name, sum] : files)
    json["files"][name] = {{"bytes", sum.bytes}, {"crc32c", sum.crc32c}};
  put(path_ / done_name(rank), json.dump());
}

// Should this fail too, the leader waits for its patience.
void UnfinishedCheckpoint::failed(int rank, const std::string& reason) const noexcept {
  try {
    put(path_ / done_name(rank),
        Json{{"failed", reason}}.dump(-1, ' ', false, Json::error_handler_t::replace));
  } catch (...) {
  }
}

FileSums UnfinishedCheckpoint::await(const std::vector<int>& ranks,
                                     const Patience& patience) const {
  const SteadyClock clock;
  FileSums files;
  std::set<int> missing(ranks.begin(), ranks.end());
  auto seen = contents_of(path_);
  Time changed = clock.now();
  Duration pause = kFirstPause;
  for (;;) {
    std::erase_if(missing, [&](int rank) {
      if (!seen.contains(done_name(rank))) return false;
      files.merge(read_done(path_ / done_name(rank), rank));
      return true;
    });
    if (missing.empty()) return files;
    const Duration silence =
        patience.hurry->load() ? std::min(kMoment, patience.silence) : patience.silence;
    if (clock.now() - changed > silence) break;
    std::this_thread::sleep_for(pause);
    pause = std::min(2 * pause, kLongestPause);
    auto now = contents_of(path_);
    if (now == seen) continue;
    seen = std::move(now);
    changed = clock.now();
  }
  if (patience.without_the_lost) return files;
  throw Error(fmt::format("{}: no part of rank {}", path_.string(), fmt::join(missing, ", ")));
}

void UnfinishedCheckpoint::publish(const std::vector<int>& ranks, const Patience& patience,
                                   int keep) const {
  const FileSums files = await(ranks, patience);
  for (const auto& each : contents_of(path_))
    if (!files.contains(each.first)) fs::remove(path_ / each.first);
  write_checksums(path_, files);
  publish_folder(path_, published());
  remove_older(folder_, keep);
}

}  // namespace skein
