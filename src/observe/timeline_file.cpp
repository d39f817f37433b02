#include "observe/timeline_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <signal.h>

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "observe/json_text.h"
#include "skein/error.h"

namespace skein {
namespace {

constexpr auto kWriteEvery = std::chrono::milliseconds(250);
constexpr std::int32_t kStep = -1;  // in place of a lane
constexpr std::size_t kUsageBytes = 4 << 20;

std::int64_t microseconds(Duration duration) {
  return std::chrono::duration_cast<std::chrono::microseconds>(duration).count();
}

std::int64_t unix_now_us() {
  return microseconds(std::chrono::system_clock::now().time_since_epoch());
}

std::string host_name() {
  char name[256] = {};
  return ::gethostname(name, sizeof name - 1) == 0 ? name : "";
}

std::int64_t resident_bytes() {
  std::ifstream in("/proc/self/statm");
  std::int64_t all = 0, resident = 0;
  return in >> all >> resident ? resident * ::sysconf(_SC_PAGESIZE) : -1;
}

// Which sum of a line of usage a lane counts for, if any. What a device does is apart, and what
// runs beside the worker's own thread takes none of its time.
std::optional<usage::Field> sum_of(Lane lane) {
  switch (lane) {
    case Lane::forward:
      return usage::forward;
    case Lane::backward:
      return usage::backward;
    case Lane::update:
      return usage::update;
    case Lane::wait:
      return usage::waiting;
    case Lane::all_reduce:
    case Lane::reduce_scatter:
    case Lane::all_gather:
      return usage::communication;
    case Lane::loading:
      return usage::loading;
    case Lane::evaluation:
      return usage::evaluation;
    case Lane::checkpoint:
      return usage::checkpoint;
    case Lane::hidden_update:
    case Lane::device_compute:
    case Lane::device_sums:
      return {};
  }
  return {};
}

FileDescriptor open_to_append(const std::filesystem::path& path) {
  return FileDescriptor(::open(path.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0666));
}

}  // namespace

TimelineWriter::TimelineWriter(const std::filesystem::path& folder, int rank,
                               std::function<std::int64_t()> device_bytes, std::size_t file_bytes)
    : stem_(folder / "timeline" / fmt::format("rank-{}", rank)),
      rank_(rank),
      device_bytes_(std::move(device_bytes)),
      file_bytes_(file_bytes),
      start_(Start::now()),
      usage_limit_(kUsageBytes),
      usage_at_(start_.time) {
  std::error_code code;
  std::filesystem::create_directories(stem_.parent_path(), code);
  open_spans();
  usage_ = open_to_append(stem_.string() + ".usage");
  if (code || !spans_.valid() || !usage_.valid())
    throw Error(fmt::format("cannot write {}.jsonl: {}", stem_.string(), std::strerror(errno)));
  append(usage_, start_line());
  // Signals are for the threads that the program knows.
  sigset_t all, before;
  ::sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, &before);
  thread_ = std::thread([this] { work(); });
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

// The two clocks at once, or nearly: the shortest of a few tries, in which nothing came between.
// Else the ranks of a host would be shown apart.
TimelineWriter::Start TimelineWriter::Start::now() {
  constexpr int kTries = 10;
  const SteadyClock clock;
  Start best{};
  Duration shortest = Duration::max();
  for (int i = 0; i < kTries; ++i) {
    const Time before = clock.now();
    const std::int64_t unix_us = unix_now_us();
    const Duration took = clock.now() - before;
    if (took < shortest) best = {before + took / 2, unix_us};
    shortest = std::min(shortest, took);
  }
  return best;
}

TimelineWriter::~TimelineWriter() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_one();
  thread_.join();
}

void TimelineWriter::span(Lane lane, std::string_view, Time begin, Time end) {
  const std::lock_guard lock(mutex_);
  if (const auto sum = sum_of(lane)) sums_[*sum] += end - begin;
  if (lane == Lane::device_compute || lane == Lane::device_sums) {
    has_device_ = true;
    device_spans_.emplace_back(begin, end);
    if (device_spans_.size() >= kMostSpansAtOnce) count_device_spans();
  }
  if (events_.size() < kMostSpansAtOnce)
    events_.push_back(
        {static_cast<std::int32_t>(lane), since_start(begin), microseconds(end - begin)});
}

// Computing and sums are on two streams, which may be busy at once.
void TimelineWriter::count_device_spans() {
  std::sort(device_spans_.begin(), device_spans_.end());
  for (const auto& [begin, end] : device_spans_) {
    device_busy_ += std::max(end - std::max(begin, device_counted_), Duration{});
    device_counted_ = std::max(device_counted_, end);
  }
  device_spans_.clear();
}

void TimelineWriter::step_done(std::int64_t step, Time at) {
  const std::lock_guard lock(mutex_);
  if (events_.size() < kMostSpansAtOnce) events_.push_back({kStep, since_start(at), step});
}

void TimelineWriter::work() {
  std::vector<Event> taken;
  for (bool last = false; !last;) {
    {
      std::unique_lock lock(mutex_);
      changed_.wait_for(lock, kWriteEvery, [this] { return stopping_; });
      last = stopping_;
      taken.clear();
      std::swap(taken, events_);
    }
    if (!taken.empty()) write_spans(taken);
    const Time now = SteadyClock().now();
    if (last || now - usage_at_ >= usage_every_) write_usage(now);
  }
}

void TimelineWriter::write_spans(const std::vector<Event>& events) {
  std::string spans, steps;
  for (const Event& event : events)
    if (event.lane == kStep)
      fmt::format_to(std::back_inserter(steps), "{}[{},{}]", steps.empty() ? "" : ",", event.value,
                     event.begin_us);
    else
      fmt::format_to(std::back_inserter(spans), "{}[{},{},{}]", spans.empty() ? "" : ",",
                     event.lane, event.begin_us, event.value);
  const std::string line = fmt::format("{{\"spans\":[{}],\"steps\":[{}]}}\n", spans, steps);
  if (span_bytes_ + line.size() > file_bytes_) {
    std::error_code ignored;
    std::filesystem::rename(stem_.string() + ".jsonl", stem_.string() + ".old", ignored);
    open_spans();
  }
  span_bytes_ += line.size();
  append(spans_, line);
}

void TimelineWriter::write_usage(Time now) {
  std::array<Duration, usage::kFields> sums{};
  Duration busy{};
  bool has_device = false;
  {
    const std::lock_guard lock(mutex_);
    std::swap(sums, sums_);
    count_device_spans();
    std::swap(busy, device_busy_);
    has_device = has_device_;
  }
  usage_at_ = now;
  std::array<std::int64_t, usage::kFields> numbers;
  std::ranges::transform(sums, numbers.begin(), microseconds);
  numbers[usage::end] = since_start(now);
  numbers[usage::resident_bytes] = resident_bytes();
  numbers[usage::device_bytes] = device_bytes_ ? device_bytes_() : -1;
  numbers[usage::device_busy] = has_device ? microseconds(busy) : -1;
  const std::string line = fmt::format("{{\"usage\":[{}]}}\n", fmt::join(numbers, ","));
  append(usage_, line);
  usage_bytes_ += line.size();
  if (usage_bytes_ < usage_limit_) return;
  usage_limit_ += kUsageBytes;  // half as often from here on: it grows with the logarithm of time
  usage_every_ *= 2;
}

// Readers take whole lines only, so one that the disk has no room for does no harm.
void TimelineWriter::append(FileDescriptor& file, const std::string& text) {
  if (::write(file.get(), text.data(), text.size()) < 0) return;
}

void TimelineWriter::open_spans() {
  const std::string path = stem_.string() + ".jsonl";
  spans_ = open_to_append(path);
  std::error_code none;
  const auto bytes = std::filesystem::file_size(path, none);
  const std::string line = start_line();
  span_bytes_ = (none ? 0 : bytes) + line.size();
  append(spans_, line);
}

std::string TimelineWriter::start_line() const {
  const nlohmann::json start{
      {"start", {{"rank", rank_}, {"host", host_name()}, {"unix_us", start_.unix_us}}}};
  // An earlier worker may have left a line unfinished.
  return fmt::format("\n{}\n", text_of(start));
}

std::int64_t TimelineWriter::since_start(Time time) const {
  return microseconds(time - start_.time);
}

}  // namespace skein
