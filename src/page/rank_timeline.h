// What is known of one worker's time: the newest spans, and sums over all of the run.
#pragma once

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <deque>
#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "observe/timeline_file.h"
#include "page/downsampled.h"
#include "page/tail.h"

namespace skein {

// Reads what TimelineWriter (observe/timeline_file.h) leaves. Times are microseconds of Unix time.
class RankTimeline {
 public:
  RankTimeline(const std::filesystem::path& folder, int rank);

  // Takes what is new, and keeps at most `most_spans` spans, the newest.
  void refresh(std::size_t most_spans);

  int rank() const { return rank_; }
  const std::string& host() const { return host_; }
  // Since the worker has written last.
  std::chrono::seconds age() const { return std::min(spans_file_.age(), usage_file_.age()); }
  bool empty() const { return spans_.empty(); }
  std::int64_t oldest_us() const { return spans_.empty() ? 0 : spans_.front().begin_us; }
  // The end of the last step, evaluation or checkpoint; where none is known, of the last span.
  std::int64_t latest_us() const {
    return steps_.empty() ? latest_us_ : std::max(steps_.back().end_us, rest_us_);
  }
  std::int64_t median_step_us() const;  // of the newest steps; 0 where none is known

  // {rank, host, spans: [[lane, begin, duration], …], steps: [[number, end], …]} of what overlaps
  // the window, in microseconds since its begin; of more than `most` spans the longest.
  nlohmann::json window(std::int64_t begin_us, std::int64_t end_us, std::size_t most) const;

  // Columns: milliseconds of each phase, up to `end`; the most bytes of memory of the process and
  // of its device; milliseconds that the device was busy, and of how many that is known (NaN: of
  // none).
  const Downsampled& usage() const { return usage_; }

  // What a worker does with its time, and with how much.
  struct Phase {
    usage::Field field;
    const char* name;
  };
  static constexpr std::array<Phase, 8> kPhases{{{usage::forward, "forward"},
                                                 {usage::backward, "backward"},
                                                 {usage::update, "update"},
                                                 {usage::waiting, "waiting"},
                                                 {usage::communication, "communication"},
                                                 {usage::loading, "loading"},
                                                 {usage::evaluation, "evaluation"},
                                                 {usage::checkpoint, "checkpoint"}}};
  double total_seconds(const Phase& phase) const { return total_seconds_[phase.field]; }
  double resident_bytes() const { return resident_bytes_; }  // NaN: not known
  double device_bytes() const { return device_bytes_; }      // likewise
  double device_seconds() const { return device_seconds_; }  // likewise

 private:
  struct Span {
    std::int64_t begin_us;
    std::int32_t duration_us;
    std::int32_t lane;
  };
  struct Step {
    std::int64_t number, end_us;
  };

  // When the worker began whose lines of a file are read, and when its last line of usage ends.
  struct Origin {
    std::int64_t start_us = 0, usage_us = 0;
  };

  void read_spans();
  void take(std::string_view line, Origin& origin);
  void take_usage(const nlohmann::json& line, Origin& origin);

  int rank_;
  std::string host_;
  const std::filesystem::path old_path_;
  Tail old_, spans_file_, usage_file_;
  Origin spans_origin_, usage_origin_;
  std::deque<Span> spans_;
  std::deque<Step> steps_;
  std::int64_t latest_us_ = 0, rest_us_ = 0;  // ends: of all spans, of evaluations and checkpoints
  Downsampled usage_;
  std::array<double, usage::kFields> total_seconds_{};  // of phases
  double resident_bytes_, device_bytes_, device_seconds_;
};

}  // namespace skein
