#include "compare/timeline.h"

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <map>

#include "core/statistics.h"

namespace skein::compare {
namespace {

using Json = nlohmann::json;

// Narrower than any screen would show.
constexpr double kLeastPart = 2e-4;

// A window of more than this times the median is an unusual one.
constexpr double kUsual = 1.2;

// Trace files have an event a line; what else is in them is no object of its own.
void for_each_event(const std::filesystem::path& path,
                    const std::function<void(const Json&)>& see) {
  std::ifstream in(path);
  for (std::string line; std::getline(in, line);) {
    const Json event =
        Json::parse(line.begin() + (line.starts_with(",") ? 1 : 0), line.end(), nullptr, false);
    if (event.is_object() && event.value("ph", "") == "X") see(event);
  }
}

// When a worker began its forward passes. A pass is in pieces where it waited for parameters.
class Passes {
 public:
  void add(const Json& event) {
    const std::string lane = event.value("cat", "");
    if (lane == "forward" || lane == "backward" ||
        (lane == "wait" && event.value("name", "") != "read"))
      spans_.emplace_back(event.value("ts", 0.0) / 1000, lane == "forward");
  }

  std::vector<double> starts() {
    std::sort(spans_.begin(), spans_.end());
    std::vector<double> out;
    bool inside = false;
    for (const auto& [begin, forward] : spans_) {
      if (forward && !inside) out.push_back(begin);
      inside = forward;
    }
    return out;
  }

 private:
  std::vector<std::pair<double, bool>> spans_;  // begin in ms, whether it is of forward
};

struct Window {
  double from = 0, to = 0;
  int steps = 0;
};

// In the middle, but for windows that are longer than most: an evaluation lies in them.
Window middle_of(const std::vector<double>& starts, int steps) {
  const int whole = static_cast<int>(starts.size()) - 1;  // a step ends where the next begins
  const int count = std::min(steps, whole);
  if (count < 1) return {};
  const auto span = static_cast<std::size_t>(count);
  std::vector<double> lengths;
  lengths.reserve(starts.size());
  for (std::size_t i = 0; i + span < starts.size(); ++i)
    lengths.push_back(starts[i + span] - starts[i]);
  const double usual = kUsual * quantile(lengths, 0.5);
  const auto distance = [&](std::size_t i) {
    return std::abs(2 * static_cast<int>(i) - (whole - count));
  };
  std::size_t best = lengths.size();
  for (std::size_t i = 0; i < lengths.size(); ++i)
    if (lengths[i] <= usual && (best == lengths.size() || distance(i) < distance(best))) best = i;
  return {starts[best], starts[best + span], count};
}

}  // namespace

Timeline read_timeline(const std::filesystem::path& trace, int steps, int workers) {
  std::map<int, Passes> passes;
  for_each_event(trace, [&](const Json& event) { passes[event.value("pid", 0)].add(event); });
  std::map<int, std::vector<double>> starts;
  for (auto& [rank, each] : passes)
    if (auto begun = each.starts(); !begun.empty()) starts[rank] = std::move(begun);
  Timeline out;
  if (starts.empty()) return out;
  const auto slowest = std::min_element(
      starts.begin(), starts.end(),
      [](const auto& a, const auto& b) { return a.second.size() < b.second.size(); });
  const Window window = middle_of(slowest->second, steps);
  if (window.steps == 0) return out;
  out.from_ms = window.from;
  out.length_ms = window.to - window.from;
  out.steps = window.steps;
  for (const auto& [rank, ignored] : starts)
    if (static_cast<int>(out.workers.size()) < workers) out.workers.push_back({rank, {}});
  for_each_event(trace, [&](const Json& event) {
    const int rank = event.value("pid", 0);
    const auto worker = std::find_if(out.workers.begin(), out.workers.end(),
                                     [&](const TimelineWorker& each) { return each.rank == rank; });
    const double begin = std::max(0.0, event.value("ts", 0.0) / 1000 - window.from);
    const double end = std::min(
        out.length_ms, (event.value("ts", 0.0) + event.value("dur", 0.0)) / 1000 - window.from);
    if (worker == out.workers.end() || end - begin < kLeastPart * out.length_ms) return;
    worker->spans.push_back({event.value("cat", ""), begin, end});
  });
  for (TimelineWorker& worker : out.workers)
    std::sort(worker.spans.begin(), worker.spans.end(),
              [](const TimelineSpan& a, const TimelineSpan& b) { return a.begin_ms < b.begin_ms; });
  return out;
}

Json to_json(const Timeline& timeline) {
  Json workers = Json::array();
  for (const TimelineWorker& worker : timeline.workers) {
    Json spans = Json::array();
    for (const TimelineSpan& span : worker.spans)
      spans.push_back({span.lane, span.begin_ms, span.end_ms});
    workers.push_back({{"rank", worker.rank}, {"spans", std::move(spans)}});
  }
  return {{"from_ms", timeline.from_ms},
          {"length_ms", timeline.length_ms},
          {"steps", timeline.steps},
          {"workers", std::move(workers)}};
}

}  // namespace skein::compare
