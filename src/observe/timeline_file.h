// What a worker did when, in its run's folder as it happens, for the live page.
//
//   DIR/timeline/rank-K.jsonl  lines of JSON, appended four times a second, in two files of at most
//   DIR/timeline/rank-K.old    8 MB: the newest spans of the run; and
//   DIR/timeline/rank-K.usage  a line a second (less often in long runs): all of the run, in sums.
//
// Lines are {"start": {rank, host, unix_us}} when a worker begins, {"spans": [[lane, begin,
// duration], …]} in microseconds since that start, {"steps": [[step, end], …]}, and in .usage
// {"usage": [end, …]}, the numbers of usage::Field.
//
// Spans of the worker's own thread do not overlap where WorkerTime (core/worker_time.h) reports
// them.
#pragma once

#include <array>
#include <condition_variable>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "core/file_descriptor.h"
#include "core/trace.h"

namespace skein {

// What a line of usage has in which place: microseconds of sums, and bytes. -1: not known.
namespace usage {
enum Field : std::uint8_t {
  end,  // of the time that the sums are of
  forward,
  backward,
  update,
  waiting,
  communication,
  resident_bytes,  // of the process
  device_bytes,    // taken of the worker's device
  device_busy,     // it had computing or sums to do, each microsecond counted once
  loading,
  evaluation,
  checkpoint
};
inline constexpr std::size_t kFields = checkpoint + 1;
inline constexpr std::size_t kFirstFields = device_busy;  // lines of earlier versions end there
}  // namespace usage

// One worker's. Thread-safe. Whoever reports only leaves a few bytes in memory; a thread of the
// writer's own formats and writes them. What cannot be written is lost, and the run goes on.
class TimelineWriter final : public Trace {
 public:
  static constexpr std::size_t kFileBytes = 8 << 20;
  static constexpr std::size_t kMostSpansAtOnce = 5000;  // in a quarter of a second

  // Makes `folder`/timeline. `device_bytes`, which may be empty, says what is taken of the worker's
  // device; it is called from the writer's thread.
  TimelineWriter(const std::filesystem::path& folder, int rank,
                 std::function<std::int64_t()> device_bytes = {},
                 std::size_t file_bytes = kFileBytes);
  ~TimelineWriter() override;  // all that was reported is in the files
  TimelineWriter(const TimelineWriter&) = delete;
  TimelineWriter& operator=(const TimelineWriter&) = delete;

  void span(Lane lane, std::string_view name, Time begin, Time end) override;
  void step_done(std::int64_t step, Time at);

 private:
  struct Event {
    std::int32_t lane;
    std::int64_t begin_us, value;  // a duration; of a step: its number
  };

  void count_device_spans();
  void work();
  void write_spans(const std::vector<Event>& events);
  void write_usage(Time now);
  void append(FileDescriptor& file, const std::string& text);
  void open_spans();
  std::string start_line() const;
  std::int64_t since_start(Time time) const;

  const std::filesystem::path stem_;  // without suffix
  const int rank_;
  const std::function<std::int64_t()> device_bytes_;
  const std::size_t file_bytes_;
  struct Start {
    Time time;
    std::int64_t unix_us;
    static Start now();
  };
  const Start start_;

  // Of the thread.
  FileDescriptor spans_, usage_;
  std::size_t span_bytes_ = 0, usage_bytes_ = 0, usage_limit_;
  Duration usage_every_ = std::chrono::seconds(1);
  Time usage_at_;

  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Event> events_;
  std::array<Duration, usage::kFields> sums_{};      // of lanes; others stay zero
  std::vector<std::pair<Time, Time>> device_spans_;  // which device_busy_ does not have yet
  Time device_counted_{};                            // up to here it has all
  Duration device_busy_{};                           // since the last line of usage
  bool has_device_ = false;
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace skein
