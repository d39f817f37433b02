#include "page/rank_timeline.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <vector>

#include "core/statistics.h"

namespace skein {
namespace {

using Json = nlohmann::json;
using Kind = Downsampled::Kind;

constexpr double kUnknown = std::numeric_limits<double>::quiet_NaN();
constexpr std::size_t kUsageRows = 240;
constexpr std::int64_t kLongest = std::numeric_limits<std::int32_t>::max();

std::filesystem::path file_of(const std::filesystem::path& folder, int rank, const char* suffix) {
  return folder / "timeline" / fmt::format("rank-{}.{}", rank, suffix);
}

// A list of at least `count` whole numbers.
bool numbers(const Json& json, std::size_t count) {
  return json.is_array() && json.size() >= count &&
         std::all_of(json.begin(), json.end(), [](const Json& x) { return x.is_number_integer(); });
}

}  // namespace

RankTimeline::RankTimeline(const std::filesystem::path& folder, int rank)
    : rank_(rank),
      old_(file_of(folder, rank, "old")),
      spans_file_(file_of(folder, rank, "jsonl")),
      usage_file_(file_of(folder, rank, "usage")),
      usage_({Kind::last, Kind::sum, Kind::sum, Kind::sum, Kind::sum, Kind::sum, Kind::most,
              Kind::most},
             kUsageRows),
      resident_bytes_(kUnknown),
      device_bytes_(kUnknown) {
  old_.read([this](std::string_view line) { take(line); });
}

void RankTimeline::refresh(std::size_t most_spans) {
  spans_file_.read([this](std::string_view line) { take(line); });
  usage_file_.read([this](std::string_view line) { take(line); });
  while (spans_.size() > most_spans) spans_.pop_front();
  while (!steps_.empty() && (spans_.empty() || steps_.front().end_us < oldest_us()))
    steps_.pop_front();
}

void RankTimeline::take(std::string_view line) {
  const Json json = Json::parse(line, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) return;
  if (const auto start = json.find("start"); start != json.end() && start->is_object()) {
    start_us_ = start->value("unix_us", std::int64_t{0});
    host_ = start->value("host", std::string());
  }
  if (const auto spans = json.find("spans"); spans != json.end() && spans->is_array())
    for (const Json& each : *spans) {
      if (!numbers(each, 3)) continue;
      const std::int64_t begin = start_us_ + each[1].get<std::int64_t>();
      const std::int64_t duration =
          std::clamp<std::int64_t>(each[2].get<std::int64_t>(), 0, kLongest);
      spans_.push_back({begin, static_cast<std::int32_t>(duration), each[0].get<std::int32_t>()});
      latest_us_ = std::max(latest_us_, begin + duration);
    }
  if (const auto steps = json.find("steps"); steps != json.end() && steps->is_array())
    for (const Json& each : *steps)
      if (numbers(each, 2))
        steps_.push_back({each[0].get<std::int64_t>(), start_us_ + each[1].get<std::int64_t>()});
  if (const auto usage = json.find("usage"); usage != json.end() && numbers(*usage, 3 + kPhases))
    take_usage(*usage);
}

void RankTimeline::take_usage(const Json& row) {
  Downsampled::Row values;
  values.reserve(row.size());
  values.push_back(static_cast<double>(start_us_ + row[0].get<std::int64_t>()) * 1e-3);
  for (std::size_t i = 0; i < kPhases; ++i) {
    values.push_back(row[i + 1].get<double>() * 1e-3);
    total_seconds_[i] += values.back() * 1e-3;
  }
  const auto bytes = [&](std::size_t at) {
    const auto value = row[at].get<double>();
    return value < 0 ? kUnknown : value;
  };
  resident_bytes_ = bytes(1 + kPhases);
  device_bytes_ = bytes(2 + kPhases);
  values.push_back(resident_bytes_);
  values.push_back(device_bytes_);
  usage_.add(values);
}

std::int64_t RankTimeline::median_step_us() const {
  std::vector<double> lengths;
  const std::size_t count = std::min<std::size_t>(steps_.size(), 50);
  for (std::size_t i = steps_.size() - count + 1; i < steps_.size(); ++i)
    lengths.push_back(static_cast<double>(steps_[i].end_us - steps_[i - 1].end_us));
  return std::llround(quantile(lengths, 0.5));
}

Json RankTimeline::window(std::int64_t begin_us, std::int64_t end_us, std::size_t most) const {
  std::vector<Span> found;
  for (const Span& span : spans_)
    if (span.begin_us < end_us && span.begin_us + span.duration_us > begin_us)
      found.push_back(span);
  if (found.size() > most) {
    std::nth_element(found.begin(), found.begin() + static_cast<std::ptrdiff_t>(most), found.end(),
                     [](const Span& a, const Span& b) { return a.duration_us > b.duration_us; });
    found.resize(most);
  }
  Json spans = Json::array(), steps = Json::array();
  for (const Span& span : found)
    spans.push_back({span.lane, span.begin_us - begin_us, span.duration_us});
  for (const Step& step : steps_)
    if (step.end_us >= begin_us && step.end_us <= end_us + (end_us - begin_us))
      steps.push_back({step.number, step.end_us - begin_us});
  return {{"rank", rank_}, {"host", host_}, {"spans", spans}, {"steps", steps}};
}

}  // namespace skein
