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

  // Writes this worker's part beside `path`. When all workers have done so one of them calls
  // join_parts().
  void write_part(const std::filesystem::path& path) const;
  static void join_parts(const std::filesystem::path& path, int size);

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
