#include "observe/trace_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "core/atomic_file.h"
#include "observe/json_text.h"
#include "skein/error.h"

namespace skein {
namespace {

using Json = nlohmann::json;

// By their values.
constexpr Lane kLanes[] = {Lane::forward,        Lane::backward,       Lane::all_reduce,
                           Lane::reduce_scatter, Lane::all_gather,     Lane::update,
                           Lane::wait,           Lane::device_compute, Lane::device_sums,
                           Lane::hidden_update,  Lane::loading,        Lane::evaluation,
                           Lane::checkpoint};

std::filesystem::path part_of(const std::filesystem::path& stem, int rank) {
  return stem.string() + fmt::format(".rank-{}.part", rank);
}

double microseconds(Time time) {
  return static_cast<double>(time.time_since_epoch().count()) * 1e-3;
}

// A file of lines, written a megabyte at a time.
class Lines {
 public:
  explicit Lines(const std::filesystem::path& path) : file_(path) {}
  void add_event(const Json& event) { add(text_of(event)); }
  void add(const std::string& line) {
    text_ += line;
    text_ += '\n';
    if (text_.size() > (1 << 20)) flush();
  }
  void commit() {
    flush();
    file_.commit();
  }

 private:
  void flush() {
    file_.write(text_.data(), text_.size());
    text_.clear();
  }
  AtomicFile file_;
  std::string text_;
};

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
    case Lane::device_compute:
      return "device: computing";
    case Lane::device_sums:
      return "device: sums and updates";
    case Lane::hidden_update:
      return "hidden update";
    case Lane::loading:
      return "loading";
    case Lane::evaluation:
      return "evaluation";
    case Lane::checkpoint:
      return "checkpoint";
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

void TraceRecorder::write_part(const std::filesystem::path& stem) const {
  const std::lock_guard lock(mutex_);
  Lines lines(part_of(stem, rank_));
  Time earliest = events_.empty() ? Time() : events_.front().begin;
  bool used[std::size(kLanes)] = {};
  for (const Event& event : events_) {
    earliest = std::min(earliest, event.begin);
    used[static_cast<std::size_t>(event.lane)] = true;
  }
  Json head{{"dropped", dropped_}};
  if (!events_.empty()) head["earliest"] = microseconds(earliest);
  lines.add_event(head);
  const auto describe = [&](Json what, const char* name, const Json& arguments) {
    what.update({{"ph", "M"}, {"pid", rank_}, {"name", name}, {"args", arguments}});
    lines.add_event(what);
  };
  describe(Json::object(), "process_name", {{"name", fmt::format("rank {}", rank_)}});
  for (const Lane lane : kLanes) {
    if (!used[static_cast<std::size_t>(lane)]) continue;
    const int tid = static_cast<int>(lane);
    describe({{"tid", tid}}, "thread_name", {{"name", lane_name(lane)}});
    describe({{"tid", tid}}, "thread_sort_index", {{"sort_index", tid}});
  }
  for (const Event& event : events_)
    lines.add_event({{"ph", "X"},
                     {"pid", rank_},
                     {"tid", static_cast<int>(event.lane)},
                     {"name", event.name},
                     {"cat", lane_name(event.lane)},
                     {"ts", microseconds(event.begin)},
                     {"dur", microseconds(event.end) - microseconds(event.begin)}});
  lines.commit();
}

std::filesystem::path TraceRecorder::stem_apart(const std::string& id) {
  return std::filesystem::temp_directory_path() / ("skein-trace-" + id);
}

// Event by event: all of them together may be more than fits into memory.
void TraceRecorder::join_parts(const std::filesystem::path& stem, int size,
                               const std::filesystem::path& path) {
  std::vector<std::ifstream> parts;
  std::size_t dropped = 0;
  std::optional<double> earliest;
  std::string line;
  for (int rank = 0; rank < size; ++rank) {
    std::ifstream part(part_of(stem, rank));
    if (!std::getline(part, line)) continue;  // a worker that was lost
    const Json head = Json::parse(line);
    dropped += head["dropped"].get<std::size_t>();
    if (head.contains("earliest"))
      earliest = std::min(earliest.value_or(INFINITY), head["earliest"].get<double>());
    parts.push_back(std::move(part));
    std::filesystem::remove(part_of(stem, rank));  // stays readable until it is closed
  }
  Lines out(path);
  out.add("{\"displayTimeUnit\":\"ms\",\"traceEvents\":[");
  bool first = true;
  for (std::ifstream& part : parts)
    while (std::getline(part, line)) {
      Json event = Json::parse(line);
      if (event.contains("ts")) event["ts"] = event["ts"].get<double>() - *earliest;
      out.add(
          (std::exchange(first, false) ? std::string() : std::string(",")).append(text_of(event)));
    }
  out.add(fmt::format("],\"otherData\":{{\"dropped_events\":{}}}}}", dropped));
  out.commit();
}

}  // namespace skein
