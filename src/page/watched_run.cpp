#include "page/watched_run.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <fstream>
#include <limits>

#include "core/parse_number.h"
#include "keep/run_folder.h"

namespace skein {
namespace {

using Json = nlohmann::json;
using Kind = Downsampled::Kind;

constexpr std::size_t kMostEvents = 500;
constexpr auto kSilence = std::chrono::seconds(15);
constexpr auto kGoing = std::chrono::seconds(5);  // workers that live write every second
constexpr std::size_t kMostSpans = 600'000;       // of all ranks together
constexpr std::size_t kMostSpansShown = 6000;

double number(const Json& json, const char* name) {
  const auto found = json.find(name);
  return found != json.end() && found->is_number() ? found->get<double>() : Downsampled::kUnknown;
}

Json read_json(const std::filesystem::path& path) {
  std::ifstream in(path);
  Json json = Json::parse(in, nullptr, false);
  return json.is_object() ? json : Json();
}

// What is not in `cursor`'s hands; the last row that it has may have changed.
Json rows_from(const Downsampled& series, std::size_t have) {
  const auto& rows = series.rows();
  const std::size_t from = have == 0 ? 0 : std::min(have - 1, rows.size());
  Json out = Json::array();
  for (std::size_t i = from; i < rows.size(); ++i) out.push_back(rows[i]);
  return {{"stride", series.stride()}, {"from", from}, {"rows", out}};
}

// Removes the members of `object` whose type is not the one that the page expects: lines of a
// damaged file, or of another program, may say anything.
using IsType = bool (Json::*)() const noexcept;
void keep_typed(Json& object, std::initializer_list<std::pair<const char*, IsType>> expected) {
  for (const auto& [name, is_type] : expected)
    if (const auto found = object.find(name); found != object.end() && !((*found).*is_type)())
      object.erase(found);
}

constexpr IsType kText = &Json::is_string, kNumber = &Json::is_number, kFlag = &Json::is_boolean;

void keep_newest(Json& list) {
  while (list.size() > kMostEvents) list.erase(list.begin());
}

}  // namespace

WatchedRun::WatchedRun(std::filesystem::path folder)
    : folder_(std::move(folder)),
      starts_(Json::array()),
      events_(Json::array()),
      metrics_(folder_ / "metrics.jsonl"),
      events_file_(folder_ / "events.jsonl"),
      steps_({Kind::last, Kind::last, Kind::last, Kind::mean, Kind::last, Kind::mean, Kind::mean,
              Kind::last}),
      evaluations_({Kind::last, Kind::last, Kind::last, Kind::last, Kind::last}) {}

void WatchedRun::refresh() {
  read_small_files();
  std::vector<std::string> lines;
  const bool anew = metrics_.read([&](std::string_view line) { lines.emplace_back(line); });
  if (anew) reset();
  for (const std::string& line : lines) take_metrics(line);
  read_events();
  find_ranks();
  const std::size_t most = kMostSpans / std::max<std::size_t>(1, ranks_.size());
  for (const auto& [rank, timeline] : ranks_) timeline->refresh(most);
}

// They outlive a run that is started anew from its beginning, whose metrics go.
void WatchedRun::read_events() {
  Json fresh = Json::array();
  const bool anew = events_file_.read([&](std::string_view line) {
    Json event = Json::parse(line, nullptr, false);
    if (!event.is_object()) return;
    keep_typed(event, {{"kind", kText}, {"text", kText}, {"unix_ms", kNumber}, {"rank", kNumber}});
    fresh.push_back(std::move(event));
  });
  if (anew) events_ = Json::array();
  for (Json& event : fresh) events_.push_back(std::move(event));
  keep_newest(events_);
}

// Another run has taken the folder.
void WatchedRun::reset() {
  ++generation_;
  steps_.drop_above(-1);
  evaluations_.drop_above(-1);
  starts_ = Json::array();
  seconds_before_ = 0;
  ranks_.clear();
}

void WatchedRun::read_small_files() {
  being_written_ = written_now(folder_);
  run_ = read_json(folder_ / "run.json");
  summary_ = read_json(folder_ / "summary.json");
  if (!summary_.is_object()) return;
  keep_typed(summary_, {{"finished", kFlag}, {"per_worker", &Json::is_array}});
  if (const auto rows = summary_.find("per_worker"); rows != summary_.end())
    if (!std::all_of(rows->begin(), rows->end(), [](const Json& row) { return row.is_object(); }))
      summary_.erase(rows);
}

void WatchedRun::take_metrics(std::string_view text) {
  const Json line = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!line.is_object()) return;
  const auto kind = line.value("kind", Json());
  const double step = number(line, "step");
  if (std::isnan(step)) return;
  const double seconds = seconds_before_ + number(line, "seconds");
  if (kind == "run") {
    begin_run(line);
  } else if (kind == "leader") {
    drop_above(step);
  } else if (kind == "step") {
    steps_.add({step, number(line, "samples"), seconds, number(line, "loss"),
                number(line, "learning_rate"), number(line, "iteration_ms"),
                number(line, "exposed_comm_ms"), number(line, "consensus_distance")});
  } else if (kind == "evaluation") {
    evaluations_.add(
        {step, number(line, "samples"), seconds, number(line, "loss"), number(line, "accuracy")});
  }
}

// Steps come in their order: those that were counted further are told again. A worker that leads in
// the place of a lost one counts its own.
void WatchedRun::drop_above(double step) {
  if (steps_.rows().empty() || steps_.rows().back().front() <= step) return;
  steps_.drop_above(step);
  evaluations_.drop_above(step);
  ++generation_;
}

// What a run did after the checkpoint that it goes on from is lost, and done again.
void WatchedRun::begin_run(const Json& line) {
  const double step = number(line, "step");
  drop_above(step);
  seconds_before_ = steps_.rows().empty() ? 0 : steps_.rows().back()[2];
  starts_.push_back(line);
  starts_.back()["seconds"] = seconds_before_;
  keep_typed(starts_.back(), {{"strategy", kText},
                              {"device", kText},
                              {"started", kText},
                              {"workers", kNumber},
                              {"samples", kNumber},
                              {"budget", kNumber}});
  keep_newest(starts_);
}

void WatchedRun::find_ranks() {
  std::error_code none;
  for (const auto& entry : std::filesystem::directory_iterator(folder_ / "timeline", none)) {
    const std::string name = entry.path().stem().string();
    int rank = 0;
    if (!name.starts_with("rank-") || !parse_number(name.substr(5), rank) || rank < 0) continue;
    if (ranks_.contains(rank)) continue;
    if (ranks_.size() >= kMostRanks) {
      if (ranks_.rbegin()->first < rank) continue;
      ranks_.erase(std::prev(ranks_.end()));
    }
    ranks_[rank] = std::make_unique<RankTimeline>(folder_, rank);
  }
}

std::string WatchedRun::status() const {
  if (being_written_) return "running";
  if (steps_.rows().empty() && starts_.empty()) return "waiting";
  if (starts_.empty()) return metrics_.age() < kSilence ? "running" : "ended";  // a program's own
  // Where rank 0, which writes metrics, was lost, others may go on.
  const bool alive = summary_.is_null() &&
                     std::any_of(ranks_.begin(), ranks_.end(),
                                 [](const auto& rank) { return rank.second->age() < kGoing; });
  if (alive) return "running";
  if (!summary_.is_null()) return summary_.value("finished", false) ? "finished" : "stopped";
  const double budget = number(starts_.back(), "budget");
  const bool whole = !steps_.rows().empty() && steps_.rows().back()[1] >= budget;
  return whole ? "finished" : "ended";
}

Json WatchedRun::state(const Cursor& cursor) const {
  const bool same = cursor.generation == generation_;
  const bool same_stride = same && cursor.stride == steps_.stride();
  const bool same_pace = same && cursor.evaluation_stride == evaluations_.stride();
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  Json out{{"generation", generation_},
           {"folder", folder_.string()},
           {"status", status()},
           {"now_ms", std::chrono::duration_cast<std::chrono::milliseconds>(now).count()},
           {"behind_bytes", metrics_.behind()},
           {"run", run_},
           {"summary", summary_},
           {"starts", starts_},
           {"events", events_},
           {"steps", rows_from(steps_, same_stride ? cursor.steps : 0)},
           {"evaluations", rows_from(evaluations_, same_pace ? cursor.evaluations : 0)},
           {"samples_per_second", recent_samples_per_second()},
           {"most_ranks", kMostRanks},
           {"ranks", Json::array()}};
  out["steps"]["columns"] = kStepColumns;
  for (const auto& [rank, timeline] : ranks_)
    out["ranks"].push_back({{"rank", rank},
                            {"host", timeline->host()},
                            {"latest_ms", timeline->latest_us() / 1000},
                            {"resident_bytes", timeline->resident_bytes()},
                            {"device_bytes", timeline->device_bytes()}});
  return out;
}

// Of some seconds: single steps say little.
double WatchedRun::recent_samples_per_second() const {
  const auto& rows = steps_.rows();
  if (rows.size() < 2) return Downsampled::kUnknown;
  const auto& last = rows.back();
  const double window = std::max(3.0, 0.02 * last[2]);
  std::size_t first = rows.size() - 2;
  while (first > 0 && last[2] - rows[first][2] < window) --first;
  const double seconds = last[2] - rows[first][2];
  return seconds > 0 ? (last[1] - rows[first][1]) / seconds : Downsampled::kUnknown;
}

Json WatchedRun::usage() const {
  Json out = Json::array();
  for (const auto& [rank, timeline] : ranks_)
    out.push_back({{"rank", rank},
                   {"stride", timeline->usage().stride()},
                   {"rows", timeline->usage().rows()}});
  return {{"ranks", out}};
}

Json WatchedRun::timeline(std::int64_t end_us, std::int64_t width_us) const {
  std::int64_t newest = 0, oldest = 0, step = 0;
  for (const auto& [rank, timeline] : ranks_) {
    if (timeline->empty()) continue;
    newest = std::max(newest, timeline->latest_us());
    oldest = oldest == 0 ? timeline->oldest_us() : std::min(oldest, timeline->oldest_us());
    step = std::max(step, timeline->median_step_us());
  }
  // Workers write at times of their own: up to where all have written, but for those that are gone.
  constexpr std::int64_t kGone = 5'000'000;
  std::int64_t latest = newest;
  for (const auto& [rank, timeline] : ranks_)
    if (timeline->latest_us() > newest - kGone) latest = std::min(latest, timeline->latest_us());
  constexpr std::int64_t kLeast = 1000, kMost = 600'000'000;
  if (width_us <= 0) width_us = step > 0 ? 10 * step : 1'000'000;
  width_us = std::clamp(width_us, kLeast, kMost);
  if (end_us <= 0 || end_us > latest) end_us = latest;
  end_us = std::max(end_us, std::min(latest, oldest + width_us));
  Json out{{"begin_us", end_us - width_us}, {"end_us", end_us}, {"oldest_us", oldest},
           {"latest_us", latest},           {"step_us", step},  {"ranks", Json::array()}};
  const std::size_t most = kMostSpansShown / std::max<std::size_t>(1, ranks_.size());
  for (const auto& [rank, timeline] : ranks_)
    out["ranks"].push_back(timeline->window(end_us - width_us, end_us, most));
  return out;
}

}  // namespace skein
