#include "page/rank_timeline.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <vector>

#include "core/statistics.h"
#include "core/trace.h"

namespace skein {
namespace {

using Json = nlohmann::json;
using Kind = Downsampled::Kind;

constexpr std::size_t kUsageRows = 240;
constexpr std::int64_t kLongest = std::numeric_limits<std::int32_t>::max();

std::filesystem::path file_of(const std::filesystem::path& folder, int rank, const char* suffix) {
  return folder / "timeline" / fmt::format("rank-{}.{}", rank, suffix);
}

// Damaged lines may say anything; sums of numbers like these stay in range.
bool whole(const Json& json) {
  constexpr auto kMost = std::int64_t{1} << 53;
  return json.is_number_integer() && std::abs(json.get<double>()) <= double(kMost);
}

bool between_steps(std::int32_t lane) {
  return lane == static_cast<std::int32_t>(Lane::evaluation) ||
         lane == static_cast<std::int32_t>(Lane::checkpoint);
}

// A list of at least `count` whole numbers.
bool numbers(const Json& json, std::size_t count) {
  return json.is_array() && json.size() >= count && std::all_of(json.begin(), json.end(), whole);
}

}  // namespace

RankTimeline::RankTimeline(const std::filesystem::path& folder, int rank)
    : rank_(rank),
      old_path_(file_of(folder, rank, "old")),
      old_(old_path_),
      spans_file_(file_of(folder, rank, "jsonl")),
      usage_file_(file_of(folder, rank, "usage")),
      usage_({{"end", Kind::last},
              {"forward", Kind::sum},
              {"backward", Kind::sum},
              {"update", Kind::sum},
              {"waiting", Kind::sum},
              {"communication", Kind::sum},
              {"resident_bytes", Kind::most},
              {"device_bytes", Kind::most},
              {"device_busy", Kind::sum},
              {"device_known", Kind::sum},
              {"loading", Kind::sum},
              {"evaluation", Kind::sum},
              {"checkpoint", Kind::sum}},
             kUsageRows),
      resident_bytes_(Downsampled::kUnknown),
      device_bytes_(Downsampled::kUnknown),
      device_seconds_(Downsampled::kUnknown) {}

void RankTimeline::refresh(std::size_t most_spans) {
  read_spans();
  usage_file_.read([this](std::string_view line) { take(line, usage_origin_); });
  while (spans_.size() > most_spans) spans_.pop_front();
  while (!steps_.empty() && (spans_.empty() || steps_.front().end_us < oldest_us()))
    steps_.pop_front();
}

// The writer renames a full file and begins the next, perhaps more than once since the last time.
void RankTimeline::read_spans() {
  const auto line = [this](std::string_view text) { take(text, spans_origin_); };
  if (spans_file_.replaced()) {
    spans_file_.read_rest(line);
    if (!spans_file_.is(old_path_)) old_.read(line);
  }
  spans_file_.read(line);
}

void RankTimeline::take(std::string_view line, Origin& origin) {
  const Json json = Json::parse(line, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) return;
  if (const auto start = json.find("start"); start != json.end() && start->is_object()) {
    const auto unix_us = start->find("unix_us"), host = start->find("host");
    if (unix_us == start->end() || !whole(*unix_us)) return;
    origin = {unix_us->get<std::int64_t>(), 0};
    host_ = host != start->end() && host->is_string() ? host->get<std::string>() : "";
  }
  if (const auto spans = json.find("spans"); spans != json.end() && spans->is_array())
    for (const Json& each : *spans) {
      if (!numbers(each, 3)) continue;
      const auto [lane, begin_us, length_us] = each.get<std::array<std::int64_t, 3>>();
      const std::int64_t begin = origin.start_us + begin_us;
      const std::int64_t duration = std::clamp<std::int64_t>(length_us, 0, kLongest);
      spans_.push_back(
          {begin, static_cast<std::int32_t>(duration), static_cast<std::int32_t>(lane)});
      latest_us_ = std::max(latest_us_, begin + duration);
      if (between_steps(spans_.back().lane)) rest_us_ = std::max(rest_us_, begin + duration);
    }
  if (const auto steps = json.find("steps"); steps != json.end() && steps->is_array())
    for (const Json& each : *steps)
      if (numbers(each, 2)) {
        const auto [number, end_us] = each.get<std::array<std::int64_t, 2>>();
        steps_.push_back({number, origin.start_us + end_us});
      }
  if (const auto sums = json.find("usage");
      sums != json.end() && numbers(*sums, usage::kFirstFields))
    take_usage(*sums, origin);
}

// Lines of earlier versions have no device_busy, nor what comes after it.
void RankTimeline::take_usage(const Json& line, Origin& origin) {
  const auto number = [&](usage::Field field) {
    return field < line.size() ? line[field].get<std::int64_t>() : -1;
  };
  const auto known = [&](usage::Field field) {
    return number(field) < 0 ? Downsampled::kUnknown : static_cast<double>(number(field));
  };
  Downsampled::Row row(usage_.columns().size());
  const auto put = [&](const char* column, double value) {
    return row[usage_.place_of(column)] = value;
  };
  for (const Phase& phase : kPhases) {
    const auto us = phase.field < line.size() ? static_cast<double>(number(phase.field)) : 0;
    total_seconds_[phase.field] += put(phase.name, us * 1e-3) * 1e-3;
  }
  put("end", static_cast<double>(origin.start_us + number(usage::end)) * 1e-3);
  resident_bytes_ = put("resident_bytes", known(usage::resident_bytes));
  device_bytes_ = put("device_bytes", known(usage::device_bytes));
  const auto since_us = static_cast<double>(number(usage::end) - origin.usage_us);
  origin.usage_us = number(usage::end);
  const double busy_us = known(usage::device_busy);
  put("device_busy", busy_us * 1e-3);
  put("device_known", std::isnan(busy_us) ? Downsampled::kUnknown : since_us * 1e-3);
  if (!std::isnan(busy_us))
    device_seconds_ = (std::isnan(device_seconds_) ? 0 : device_seconds_) + busy_us * 1e-6;
  usage_.add(row);
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
