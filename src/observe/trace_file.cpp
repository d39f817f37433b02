#include "observe/trace_file.h"

#include <fmt/format.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "core/atomic_file.h"
#include "skein/error.h"

namespace skein {
namespace {

using Json = nlohmann::json;

constexpr Lane kLanes[] = {Lane::forward,    Lane::backward, Lane::all_reduce, Lane::reduce_scatter,
                           Lane::all_gather, Lane::update,   Lane::wait};

std::filesystem::path part_of(const std::filesystem::path& path, int rank) {
  return path.string() + fmt::format(".rank-{}.part", rank);
}

double microseconds(Time time) {
  return static_cast<double>(time.time_since_epoch().count()) * 1e-3;
}

}  // namespace

const char* lane_name(Lane lane) {
  switch (lane) {
    case Lane::forward:
      return "forward";
    case Lane::backward:
      return "backward";
    case Lane::all_reduce:
      return "all-reduce";
    case Lane::reduce_scatter:
      return "reduce-scatter";
    case Lane::all_gather:
      return "all-gather";
    case Lane::update:
      return "update";
    case Lane::wait:
      return "wait";
  }
  return "?";
}

void TraceRecorder::span(Lane lane, std::string_view name, Time begin, Time end) {
  const std::lock_guard lock(mutex_);
  if (events_.size() < kMostEvents)
    events_.push_back({lane, std::string(name), begin, end});
  else
    ++dropped_;
}

void TraceRecorder::write_part(const std::filesystem::path& path) const {
  const std::lock_guard lock(mutex_);
  Json events = Json::array();
  events.push_back({{"ph", "M"},
                    {"pid", rank_},
                    {"name", "process_name"},
                    {"args", {{"name", fmt::format("rank {}", rank_)}}}});
  bool used[std::size(kLanes)] = {};
  for (const Event& event : events_) {
    used[static_cast<std::size_t>(event.lane)] = true;
    events.push_back({{"ph", "X"},
                      {"pid", rank_},
                      {"tid", static_cast<int>(event.lane)},
                      {"name", event.name},
                      {"cat", lane_name(event.lane)},
                      {"ts", microseconds(event.begin)},
                      {"dur", microseconds(event.end) - microseconds(event.begin)}});
  }
  for (const Lane lane : kLanes) {
    if (!used[static_cast<std::size_t>(lane)]) continue;
    const int tid = static_cast<int>(lane);
    events.push_back({{"ph", "M"},
                      {"pid", rank_},
                      {"tid", tid},
                      {"name", "thread_name"},
                      {"args", {{"name", lane_name(lane)}}}});
    events.push_back({{"ph", "M"},
                      {"pid", rank_},
                      {"tid", tid},
                      {"name", "thread_sort_index"},
                      {"args", {{"sort_index", tid}}}});
  }
  write_whole(part_of(path, rank_), Json{{"dropped", dropped_}, {"events", events}}.dump());
}

void TraceRecorder::join_parts(const std::filesystem::path& path, int size) {
  Json all = Json::array();
  std::size_t dropped = 0;
  double earliest = -1;
  for (int rank = 0; rank < size; ++rank) {
    const auto part_path = part_of(path, rank);
    std::ifstream file(part_path);
    if (!file) continue;  // a worker that was lost
    Json part = Json::parse(file);
    std::filesystem::remove(part_path);
    dropped += part["dropped"].get<std::size_t>();
    for (auto& event : part["events"]) {
      if (event.contains("ts") && (earliest < 0 || event["ts"] < earliest)) earliest = event["ts"];
      all.push_back(std::move(event));
    }
  }
  for (auto& event : all)
    if (event.contains("ts")) event["ts"] = event["ts"].get<double>() - earliest;
  write_whole(path, Json{{"traceEvents", all},
                         {"displayTimeUnit", "ms"},
                         {"otherData", {{"dropped_events", dropped}}}}
                        .dump());
}

}  // namespace skein
