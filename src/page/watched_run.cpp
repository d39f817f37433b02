#include "page/watched_run.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <fstream>
#include <limits>

#include "core/field_names.h"
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

Json names_of(const Downsampled& series) {
  Json names = Json::array();
  for (const Downsampled::Column& column : series.columns()) names.push_back(column.name);
  return names;
}

// What is not in `cursor`'s hands; the last row that it has may have changed.
Json rows_from(const Downsampled& series, std::size_t have) {
  const auto& rows = series.rows();
  const std::size_t from = have == 0 ? 0 : std::min(have - 1, rows.size());
  Json out = Json::array();
  for (std::size_t i = from; i < rows.size(); ++i) out.push_back(rows[i]);
  return {
      {"stride", series.stride()}, {"from", from}, {"columns", names_of(series)}, {"rows", out}};
}

// Its fields, as `series` has columns for them; `seconds` in place of its own.
Downsampled::Row row_of(const Json& line, const Downsampled& series, double seconds) {
  Downsampled::Row row;
  row.reserve(series.columns().size());
  for (const Downsampled::Column& column : series.columns())
    row.push_back(number(line, column.name));
  row[series.place_of(field::kSeconds)] = seconds;
  return row;
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
      steps_({{field::kStep, Kind::last},
              {field::kSamples, Kind::last},
              {field::kSeconds, Kind::last},
              {field::kLoss, Kind::mean},
              {field::kLearningRate, Kind::last},
              {field::kIterationMs, Kind::mean},
              {field::kExposedCommMs, Kind::mean},
              {field::kConsensusDistance, Kind::last}}),
      evaluations_({{field::kStep, Kind::last},
                    {field::kSamples, Kind::last},
                    {field::kSeconds, Kind::last},
                    {field::kLoss, Kind::last},
                    {field::kAccuracy, Kind::last}}) {}

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
  keep_typed(summary_, {{field::kFinished, kFlag}, {field::kPerWorker, &Json::is_array}});
  if (const auto rows = summary_.find(field::kPerWorker); rows != summary_.end())
    if (!std::all_of(rows->begin(), rows->end(), [](const Json& row) { return row.is_object(); }))
      summary_.erase(rows);
}

void WatchedRun::take_metrics(std::string_view text) {
  const Json line = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!line.is_object()) return;
  const auto kind = line.value(field::kKind, Json());
  const double step = number(line, field::kStep);
  if (std::isnan(step)) return;
  const double seconds = seconds_before_ + number(line, field::kSeconds);
  if (kind == field::kRunKind) {
    begin_run(line);
  } else if (kind == field::kLeaderKind) {
    drop_above(step);
  } else if (kind == field::kStepKind) {
    steps_.add(row_of(line, steps_, seconds));
  } else if (kind == field::kEvaluationKind) {
    evaluations_.add(row_of(line, evaluations_, seconds));
  }
}

// Steps come in their order: those that were counted further are told again. A worker that leads in
// the place of a lost one counts its own.
void WatchedRun::drop_above(double step) {
  if (steps_.rows().empty() || steps_.last(field::kStep) <= step) return;
  steps_.drop_above(step);
  evaluations_.drop_above(step);
  ++generation_;
}

// What a run did after the checkpoint that it goes on from is lost, and done again.
void WatchedRun::begin_run(const Json& line) {
  const double step = number(line, field::kStep);
  drop_above(step);
  seconds_before_ = steps_.rows().empty() ? 0 : steps_.last(field::kSeconds);
  starts_.push_back(line);
  starts_.back()[field::kSeconds] = seconds_before_;
  keep_typed(starts_.back(), {{field::kStrategy, kText},
                              {field::kDevice, kText},
                              {field::kStarted, kText},
                              {field::kWorkers, kNumber},
                              {field::kSamples, kNumber},
                              {field::kBudget, kNumber}});
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
  if (!summary_.is_null()) return summary_.value(field::kFinished, false) ? "finished" : "stopped";
  const double budget = number(starts_.back(), field::kBudget);
  const bool whole = !steps_.rows().empty() && steps_.last(field::kSamples) >= budget;
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
           {field::kSamplesPerSecond, recent_samples_per_second()},
           {"most_ranks", kMostRanks},
           {"ranks", Json::array()}};
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
  const std::size_t at_seconds = steps_.place_of(field::kSeconds);
  const std::size_t at_samples = steps_.place_of(field::kSamples);
  const double end = steps_.last(field::kSeconds), window = std::max(3.0, 0.02 * end);
  std::size_t first = rows.size() - 2;
  while (first > 0 && end - rows[first][at_seconds] < window) --first;
  const double seconds = end - rows[first][at_seconds];
  return seconds > 0 ? (steps_.last(field::kSamples) - rows[first][at_samples]) / seconds
                     : Downsampled::kUnknown;
}

Json WatchedRun::usage() const {
  Json out{{"columns", Json::array()}, {"ranks", Json::array()}};
  for (const auto& [rank, timeline] : ranks_) {
    const Downsampled& usage = timeline->usage();
    out["columns"] = names_of(usage);
    out["ranks"].push_back({{"rank", rank}, {"stride", usage.stride()}, {"rows", usage.rows()}});
  }
  return out;
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
