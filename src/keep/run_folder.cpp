#include "keep/run_folder.h"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <ctime>
#include <fstream>
#include <nlohmann/json.hpp>
#include <vector>

#include "core/atomic_file.h"
#include "core/field_names.h"
#include "keep/checkpoint_files.h"
#include "skein/error.h"

namespace skein {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

constexpr const char* kRun = "run.json";
constexpr const char* kEvents = "events.jsonl";
constexpr const char* kFiles[] = {kRun, "metrics.jsonl", "model.safetensors", "summary.json"};

bool same_folder(const fs::path& one, const fs::path& two) {
  std::error_code none;
  return !one.empty() && fs::equivalent(one, two, none);
}

// What the user may know it by.
std::string describe(const fs::path& out) {
  const RunRecord run = read_run(out);
  const auto checkpoints = checkpoints_in(out);
  std::string text = run.id.empty() ? "another run" : "run " + run.id;
  if (!run.started.empty()) text += ", started " + run.started;
  if (!checkpoints.empty())
    text += fmt::format(", last saved at {} samples", samples_of(checkpoints.back()));
  return text;
}

[[noreturn]] void refuse_taken(const fs::path& out, const LockHolder& holder) {
  throw ConfigError(
      fmt::format("--out {}: a run is writing there now ({}); expected another folder",
                  out.string(), holder.text()));
}

}  // namespace

fs::path run_lock(const fs::path& out) { return out / "run.lock"; }
fs::path launch_lock(const fs::path& out) { return out / "launch.lock"; }

bool written_now(const fs::path& out) { return is_held(run_lock(out)); }

std::string run_id(std::uint64_t random) { return fmt::format("{:016x}", random); }

std::string utc_now() {
  return fmt::format("{:%Y-%m-%d %H:%M:%S} UTC", fmt::gmtime(std::time(nullptr)));
}

bool continues_run(const fs::path& out, const fs::path& resume) {
  return !out.empty() && !resume.empty() && same_folder(run_folder_of(resume), out);
}

bool holds_run(const fs::path& out) {
  std::error_code none;
  for (const char* name : kFiles)
    if (const auto bytes = fs::file_size(out / name, none); !none && bytes > 0) return true;
  return !checkpoints_in(out).empty();
}

FolderLock take_folder(const fs::path& out, const fs::path& file) {
  FolderLock lock;
  if (const auto holder = lock.take(file, "")) refuse_taken(out, *holder);
  return lock;
}

FolderLock join_left_behind(const fs::path& out, const LockHolder& holder) {
  const std::string id = read_run(out).id;
  if (id.empty() || holder.run != id)
    throw Error(
        fmt::format("--out {}: cannot start the run anew, since another one is writing there now "
                    "({})",
                    out.string(), holder.text()));
  FolderLock lock;
  lock.join(run_lock(out));
  lock.lead(id);
  return lock;
}

void check_may_write(const fs::path& out, const fs::path& resume, bool overwrite) {
  check_contents(out, resume, overwrite);
  if (const auto holder = holder_of(run_lock(out))) refuse_taken(out, *holder);
}

void check_contents(const fs::path& out, const fs::path& resume, bool overwrite) {
  const bool continues = continues_run(out, resume);
  if (continues && overwrite)
    throw ConfigError(fmt::format(
        "--overwrite with --resume {}: that is the run to be continued; expected one of the two",
        resume.string()));
  if (continues || overwrite || !holds_run(out)) return;
  throw ConfigError(fmt::format(
      "--out {0} holds {1}: expected another folder, --resume {0} to continue that run, or "
      "--overwrite to remove it",
      out.string(), describe(out)));
}

RunRecord read_run(const fs::path& out) {
  std::ifstream in(out / kRun);
  const Json json = Json::parse(in, nullptr, false);
  const auto text = [&](const char* key) {
    const bool there = json.is_object() && json.contains(key) && json[key].is_string();
    return there ? json[key].get<std::string>() : std::string();
  };
  return {text(field::kRunId), text(field::kStarted), text(field::kResumedFrom), text("version"),
          ""};
}

void write_run(const fs::path& out, const RunRecord& run) {
  Json json{{field::kRunId, run.id},
            {field::kStarted, run.started},
            {"version", run.version},
            {"config", Json::parse(run.config)}};
  if (!run.resumed_from.empty()) json[field::kResumedFrom] = run.resumed_from;
  // Paths may hold any bytes.
  write_whole(out / kRun,
              json.dump(2, ' ', /*ensure_ascii=*/false, Json::error_handler_t::replace) + "\n");
}

void remove_run(const fs::path& out) {
  std::vector<fs::path> found;
  std::error_code none;
  for (const auto& entry : fs::directory_iterator(out, none)) {
    const std::string name = entry.path().filename().string();
    for (const std::string file : kFiles)
      if (name == file || name.starts_with(file + ".tmp-")) found.push_back(entry.path());
  }
  for (const auto& entry : fs::directory_iterator(out / "timeline", none))
    if (entry.path().stem().string().starts_with("rank-")) found.push_back(entry.path());
  for (const auto& entry : fs::directory_iterator(out / "checkpoints", none)) {
    const std::string name = entry.path().filename().string();
    if (samples_of(entry.path()) >= 0 || name.starts_with("unfinished-") ||
        name.starts_with("set-aside-"))
      found.push_back(entry.path());
  }
  for (const fs::path& each : found) fs::remove_all(each);
  fs::remove(out / "checkpoints", none);  // unless it holds something else
  fs::remove(out / "timeline", none);     // likewise
}

void remove_logs(const fs::path& out) {
  std::vector<fs::path> logs, folders;
  std::error_code none;
  for (const auto& entry : fs::recursive_directory_iterator(out / "logs", none)) {
    const std::string name = entry.path().filename().string();
    if (entry.is_directory() && name.starts_with("earlier-")) folders.push_back(entry.path());
    if (entry.is_regular_file() && name.starts_with("rank-") && name.ends_with(".log"))
      logs.push_back(entry.path());
  }
  for (const fs::path& each : logs) fs::remove(each);
  fs::remove(out / kEvents, none);
  for (const fs::path& each : folders) fs::remove(each, none);  // unless it holds something else
}

}  // namespace skein
