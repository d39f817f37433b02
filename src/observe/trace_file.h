// Traces for chrome://tracing and ui.perfetto.dev.
#pragma once

#include <filesystem>
#include <mutex>
#include <string>
#include <vector>

#include "core/trace.h"

namespace skein {

// One worker's events, kept in memory until the run has ended. Thread-safe.
class TraceRecorder final : public Trace {
 public:
  // What a trace can hold; later events are dropped and counted.
  static constexpr std::size_t kMostEvents = 2'000'000;

  explicit TraceRecorder(int rank) : rank_(rank) {}
  void span(Lane lane, std::string_view name, Time begin, Time end) override;

  // Writes this worker's part to a file whose name begins with `stem`. When all workers have done
  // so one of them calls join_parts(), which writes the trace to `path` and removes the parts.
  void write_part(const std::filesystem::path& stem) const;
  static void join_parts(const std::filesystem::path& stem, int size,
                         const std::filesystem::path& path);

  // A stem in this host's folder for temporary files, for a trace that goes to a pipe or a device,
  // beside which there is no place for parts. `id` tells one run's parts from another's.
  static std::filesystem::path stem_apart(const std::string& id);

 private:
  struct Event {
    Lane lane;
    std::string name;
    Time begin, end;
  };

  int rank_;
  mutable std::mutex mutex_;
  std::vector<Event> events_;
  std::size_t dropped_ = 0;
};

const char* lane_name(Lane lane);

}  // namespace skein
