// A run as its folder shows it, while it goes on or afterwards.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "page/downsampled.h"
#include "page/rank_timeline.h"
#include "page/tail.h"

namespace skein {

// Reads run.json, metrics.jsonl, events.jsonl, summary.json and timeline/ (see keep/run_folder.h)
// as they grow, into bounded memory. Steps that a resumed run does again are dropped. Not
// thread-safe.
class WatchedRun {
 public:
  static constexpr std::size_t kMostRanks = 64;  // whose timelines are shown

  explicit WatchedRun(std::filesystem::path folder);

  // Takes what is new; of a very long file a part, the rest by further calls.
  void refresh();

  // What somebody has who has asked before.
  struct Cursor {
    std::int64_t generation = -1, stride = 0;  // of the steps
    std::size_t steps = 0, evaluations = 0;    // rows
    std::int64_t evaluation_stride = 0;
  };

  // What is to be shown of the run, but for rows of steps and evaluations that `cursor` has: beside
  // the rows are the names of their columns.
  nlohmann::json state(const Cursor& cursor) const;

  // Each rank's sums over time, as RankTimeline::usage().
  nlohmann::json usage() const;

  // Each rank's spans in a window that ends at `end_us` (Unix time; 0: the newest) and is
  // `width_us` long (0: some ten steps).
  nlohmann::json timeline(std::int64_t end_us, std::int64_t width_us) const;

  // The same figures in Prometheus's text format.
  std::string prometheus() const;

 private:
  void reset();
  void take_metrics(std::string_view line);
  void begin_run(const nlohmann::json& line);
  void drop_above(double step);
  void read_small_files();
  void read_events();
  void find_ranks();
  std::string status() const;
  double recent_samples_per_second() const;

  const std::filesystem::path folder_;
  std::int64_t generation_ = 0;
  nlohmann::json run_, summary_;  // null: there is none
  nlohmann::json starts_, events_;
  Tail metrics_, events_file_;
  Downsampled steps_, evaluations_;
  std::int64_t step_count_ = 0;
  double seconds_before_ = 0;  // training time of the starts before this one
  std::map<int, std::unique_ptr<RankTimeline>> ranks_;
  bool being_written_ = false;
};

}  // namespace skein
