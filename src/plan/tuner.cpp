#include "plan/tuner.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numbers>
#include <span>

#include "core/check.h"
#include "core/portable_math.h"
#include "plan/gaussian_process.h"
#include "skein/error.h"

namespace skein {
namespace {

constexpr int kOctaves = 8, kStepsPerOctave = 16;
constexpr double kWorthTrying = 0.005;  // expected saving, of the best time
constexpr std::size_t kFewestTrials =
    4;                             // before an early end: too many curves go through three points
constexpr double kNearTie = 0.99;  // of the largest expected improvement

static_assert(FusionTuner::kLeastBytes << kOctaves == FusionTuner::kMostBytes);
static_assert(FusionTuner::kMostTrials <= kMostSamples / 2);

// In octaves above the least size.
double place_of(std::size_t bytes) {
  const double ratio = static_cast<double>(bytes) / static_cast<double>(FusionTuner::kLeastBytes);
  return portable_log(ratio) * std::numbers::log2e;
}

// Whole KiB, because nobody wants to read more digits.
std::size_t size_at(double octaves) {
  const double kib = 1024 * portable_exp(octaves * std::numbers::ln2);
  return static_cast<std::size_t>(std::lround(kib)) * 1024;
}

std::vector<std::size_t> all_sizes() {
  std::vector<std::size_t> sizes;
  for (int i = 0; i <= kOctaves * kStepsPerOctave; ++i)
    sizes.push_back(size_at(static_cast<double>(i) / kStepsPerOctave));
  return sizes;
}

}  // namespace

FusionTuner::FusionTuner(std::size_t start_bytes, std::uint64_t seed, int trials)
    : rng_(seed),
      trials_(static_cast<std::size_t>(trials)),
      open_(all_sizes()),
      proposal_(start_bytes),
      best_(start_bytes) {
  if (start_bytes < kLeastBytes || start_bytes > kMostBytes)
    throw ConfigError(fmt::format("fusion tuning cannot start from {} bytes: expected {} to {}",
                                  start_bytes, kLeastBytes, kMostBytes));
  if (trials < 1 || trials > kMostTrials)
    throw ConfigError(
        fmt::format("fusion tuning with {} trials: expected 1 to {}", trials, kMostTrials));
  spread_ = {size_at(2), size_at(6), size_at(4)};
}

void FusionTuner::observe(double seconds) {
  SKEIN_CHECK(!done_, "observed {} s after the last trial", seconds);
  SKEIN_CHECK(std::isfinite(seconds) && seconds > 0, "an iteration of {} s", seconds);
  curve_.push_back({proposal_, seconds});
  same_.push_back({proposal_, proposal_});
  close(same_.back());
  advance();
}

void FusionTuner::observe_same(std::size_t tried_bytes) {
  SKEIN_CHECK(!done_, "the same as {} bytes after the last trial", tried_bytes);
  const auto trial = std::ranges::find(curve_, tried_bytes, &Trial::bytes);
  SKEIN_CHECK(trial != curve_.end(), "{} bytes were not tried", tried_bytes);
  Interval& known = same_[static_cast<std::size_t>(trial - curve_.begin())];
  known = {std::min(known.low, proposal_), std::max(known.high, proposal_)};
  close(known);
  advance();
}

// Neighbours closer than half a step go as well: they would teach nothing.
void FusionTuner::close(const Interval& known) {
  const double margin = 0.5 / kStepsPerOctave;
  const double low = place_of(known.low) - margin, high = place_of(known.high) + margin;
  std::erase_if(open_, [&](std::size_t bytes) {
    const double place = place_of(bytes);
    return place >= low && place <= high;
  });
}

void FusionTuner::advance() {
  fit();
  std::erase_if(spread_, [&](std::size_t bytes) { return is_near_known(bytes); });
  if (curve_.size() >= trials_ || open_.empty() || (spread_.empty() && !is_worth_trying())) {
    done_ = true;
    proposal_ = best_;
  } else {
    proposal_ = spread_.empty() ? most_promising() : spread_.front();
  }
}

bool FusionTuner::is_worth_trying() const {
  return curve_.size() < kFewestTrials || std::ranges::max(improvement_) >= kWorthTrying;
}

bool FusionTuner::is_near_known(std::size_t bytes) const {
  return std::ranges::any_of(same_, [&](const Interval& known) {
    return bytes > known.low / 2 && bytes < known.high * 2;
  });
}

void FusionTuner::fit() {
  std::vector<Sample> samples;
  std::vector<double> places;
  for (std::size_t i = 0; i < curve_.size(); ++i) {
    const double y = portable_log(curve_[i].seconds);
    const auto [low, high] = same_[i];
    samples.push_back({place_of(low), y});
    if (high != low) samples.push_back({place_of(high), y});
    places.push_back(place_of(low));
  }
  for (const std::size_t bytes : open_) places.push_back(place_of(bytes));

  const std::vector<Belief> beliefs = regress(samples, places);
  const auto tried = std::span(beliefs).first(curve_.size());
  const auto fastest = std::ranges::min_element(tried, {}, &Belief::mean);
  best_ = curve_[static_cast<std::size_t>(fastest - tried.begin())].bytes;
  improvement_.clear();
  for (const Belief& belief : std::span(beliefs).subspan(curve_.size()))
    improvement_.push_back(expected_improvement(belief, fastest->mean));
}

std::size_t FusionTuner::most_promising() {
  const double enough = kNearTie * std::ranges::max(improvement_);
  std::vector<std::size_t> sizes;
  for (std::size_t i = 0; i < open_.size(); ++i)
    if (improvement_[i] >= enough) sizes.push_back(open_[i]);
  return sizes[rng_.below(sizes.size())];
}

}  // namespace skein
