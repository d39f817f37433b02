// The folder that --out names: whose run it holds.
//
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

#include "core/file_descriptor.h"

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

// Whether a run writes to the folder now. Of a folder that several hosts share: one of this host.
bool written_now(const std::filesystem::path& out);

// ConfigError unless a run may write to `out`: it holds no run, or the one that `resume` (empty: a
// new run) is to continue, or `overwrite` says that it may be removed; and no other run writes
// there now. Changes nothing.
void check_may_write(const std::filesystem::path& out, const std::filesystem::path& resume,
                     bool overwrite);

// The identity of the run in `out`; without id where there is none, or none that can be read.
RunRecord read_run(const std::filesystem::path& out);

// Writes it, and takes the folder for as long as the result lives.
FileDescriptor take_folder(const std::filesystem::path& out, const RunRecord& run);

// Removes what a run has left in `out`, and no file of anybody else's. What the launcher writes
// stays.
void remove_run(const std::filesystem::path& out);

// What the launcher writes, logs and events: before there are workers that know whether a run can
// start.
void remove_logs(const std::filesystem::path& out);

}  // namespace skein
