#include "keep/unfinished_checkpoint.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <chrono>
#include <utility>

#include "core/atomic_file.h"
#include "keep/checkpoint_files.h"
#include "skein/error.h"

namespace skein {
namespace {

namespace fs = std::filesystem;

constexpr std::chrono::seconds kMoment(1);
constexpr std::chrono::milliseconds kLookForHurry(50);  // nobody notifies of it

}  // namespace

void CheckpointParts::done(int rank, const FileSums& files) {
  const std::lock_guard lock(mutex_);
  if (!forget(rank)) return;
  files_.insert(files.begin(), files.end());
  changed_.notify_all();
}

void CheckpointParts::failed(int rank, const std::string& reason) {
  const std::lock_guard lock(mutex_);
  if (!forget(rank)) return;
  if (failure_.empty()) failure_ = fmt::format("rank {}: {}", rank, reason);
  changed_.notify_all();
}

void CheckpointParts::lost(int rank, const std::string& reason) {
  const std::lock_guard lock(mutex_);
  if (!forget(rank)) return;
  if (loss_.empty()) loss_ = fmt::format("no part of rank {}: {}", rank, reason);
  changed_.notify_all();
}

FileSums CheckpointParts::wait(const std::atomic<bool>& hurry, bool without_the_lost) {
  using Clock = std::chrono::steady_clock;
  std::unique_lock lock(mutex_);
  auto until = Clock::time_point::max();
  while (!missing_.empty() && failure_.empty() && Clock::now() < until) {
    if (hurry && until == Clock::time_point::max()) until = Clock::now() + kMoment;
    changed_.wait_for(lock, kLookForHurry);
  }
  if (!failure_.empty()) throw Error(failure_);
  if (!without_the_lost && !loss_.empty()) throw Error(loss_);
  if (!without_the_lost && !missing_.empty())
    throw Error(
        fmt::format("no part of rank {}: the run has ended before", fmt::join(missing_, ", ")));
  return files_;
}

UnfinishedCheckpoint::UnfinishedCheckpoint(fs::path folder, std::string name)
    : folder_(std::move(folder)),
      name_(std::move(name)),
      path_(folder_ / ("unfinished-" + name_)) {}

void UnfinishedCheckpoint::begin() const {
  remove_unfinished(folder_);
  fs::create_directories(path_);
}

void UnfinishedCheckpoint::publish(const FileSums& files, int keep) const {
  std::vector<fs::path> others;
  for (const auto& entry : fs::directory_iterator(path_))
    if (!files.contains(entry.path().filename().string())) others.push_back(entry.path());
  for (const fs::path& each : others) fs::remove(each);
  write_checksums(path_, files);
  publish_folder(path_, published());
  remove_older(folder_, keep);
}

}  // namespace skein
