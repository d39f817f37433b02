// The folder that --out names: whose run it holds.
//
//   OUT/run.lock             held by the run that writes here, see folder_lock.h; so is
//   OUT/launch.lock          by its launcher
//   OUT/run.json             the run's identity
//   OUT/metrics.jsonl        a line per step and evaluation, and one each time the run starts
//   OUT/summary.json         the figures of its end
//   OUT/timeline/            what each worker did when, where that was asked for
//   OUT/events.jsonl         what the launcher saw: lost workers, restarts, the end; likewise
//   OUT/model.safetensors    the model at the end
//   OUT/checkpoints/         see checkpoint_files.h
//   OUT/logs/rank-K.log      what workers printed
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include "keep/folder_lock.h"

namespace skein {

// run.json.
struct RunRecord {
  std::string id;       // 16 hexadecimal digits, made when a run starts; empty: none is known
  std::string started;  // "2026-11-15 16:20:11 UTC"
  std::string
      resumed_from;     // id of the run that this one went on from, in another folder, or empty
  std::string version;  // of Skein
  std::string config;   // every option and its value, as one JSON object
};

std::string run_id(std::uint64_t random);
std::string utc_now();  // "2026-11-15 16:20:11 UTC"

// Whether `resume` is the run in `out`, or a checkpoint of it.
bool continues_run(const std::filesystem::path& out, const std::filesystem::path& resume);

// Whether a run has left something in the folder. Logs alone do not count: a run that could not
// start has them, too.
bool holds_run(const std::filesystem::path& out);

std::filesystem::path run_lock(const std::filesystem::path& out);
std::filesystem::path launch_lock(const std::filesystem::path& out);

// Whether a run writes to the folder now.
bool written_now(const std::filesystem::path& out);

// ConfigError unless a run may write to `out`: it holds no run, or the one that `resume` (empty: a
// new run) is to continue, or `overwrite` says that it may be removed. Whether one writes there now
// is for its locks to say. Changes nothing.
void check_contents(const std::filesystem::path& out, const std::filesystem::path& resume,
                    bool overwrite);

// The same, and ConfigError where a run writes there now: an early answer, which take_folder()
// gives for good.
void check_may_write(const std::filesystem::path& out, const std::filesystem::path& resume,
                     bool overwrite);

// Takes the lock `file` of the folder `out` for as long as the result lives, before anything in the
// folder is read or written. Where it is taken: ConfigError, with whoever holds it.
FolderLock take_folder(const std::filesystem::path& out, const std::filesystem::path& file);

// Leads the run in `out` beside `holder`, who has run_lock(out) still: a worker of an earlier
// attempt at the same run which was lost and cannot end, or whose host has lost its power, so that
// a file server keeps its lock. The caller's launcher holds launch_lock(out), so that nobody else
// starts that run. Throws Error where `holder` is of another run.
FolderLock join_left_behind(const std::filesystem::path& out, const LockHolder& holder);

// The identity of the run in `out`; without id where there is none, or none that can be read.
RunRecord read_run(const std::filesystem::path& out);

void write_run(const std::filesystem::path& out, const RunRecord& run);

// Removes what a run has left in `out`, and no file of anybody else's. What the launcher writes
// stays.
void remove_run(const std::filesystem::path& out);

// What the launcher writes, logs and events: before there are workers that know whether a run can
// start.
void remove_logs(const std::filesystem::path& out);

}  // namespace skein
