// The learning rate as a function of the samples that all workers together have trained on.
#pragma once

#include <cstdint>
#include <string_view>

namespace skein {

struct Schedule {
  enum class Kind : std::uint8_t { constant, cosine, step };

  Kind kind = Kind::constant;
  std::int64_t warmup = 0;  // samples over which the rate first rises, linearly, from 0
  double floor = 0;         // cosine: the rate at the end
  std::int64_t every = 0;   // step: samples between two steps, counted from the start of training
  double factor = 0.1;      // step: what the rate is multiplied by at each
};

// Reads NAME or NAME:KEY=VALUE,KEY=VALUE…
//   constant  [warmup=SAMPLES]
//   cosine    [floor=RATE] [warmup=SAMPLES]
//   step      every=SAMPLES [factor=NUMBER] [warmup=SAMPLES]
// such as "cosine:floor=0.001,warmup=5000". Throws ConfigError that names the key, the value and
// what is allowed.
Schedule parse_schedule(std::string_view text);

class LearningRate {
 public:
  // `base` is the rate that warm-up ends at. A cosine falls from there to the floor at
  // `total_samples`, which the others ignore. Throws ConfigError where these do not fit together:
  // a floor above the base, a cosine that would end before its warm-up.
  LearningRate(double base, const Schedule& schedule, std::int64_t total_samples = 0);

  // The rate of an update before which `samples` were trained on. So with warm-up the very first
  // update has rate 0. Past the end a cosine stays at its floor. Requires samples ≥ 0.
  double at(std::int64_t samples) const;

  double base() const { return base_; }

  // The same schedule from another base. Throws as the constructor does.
  LearningRate with_base(double base) const { return {base, schedule_, total_samples_}; }

 private:
  double base_;
  Schedule schedule_;
  std::int64_t total_samples_;
};

}  // namespace skein
