#include <cmath>
#include <utility>

#include "core/portable_math.h"
#include "core/rng.h"
#include "sim/objectives/kinds.h"

namespace skein::sim {
namespace {

enum QuadraticStream : std::uint64_t { kCentre, kOffsets, kNoise };

std::vector<double> gaussian_vector(std::size_t dimension, Rng rng) {
  std::vector<double> values(dimension);
  for (double& value : values) value = rng.normal();
  return values;
}

class QuadraticReplica final : public Replica {
 public:
  QuadraticReplica(const std::vector<double>& spectrum, std::vector<double> centre, double noise,
                   Rng rng)
      : spectrum_(spectrum),
        centre_(std::move(centre)),
        noise_(noise),
        rng_(rng),
        arena_({{"x", centre_.size()}}, allocate_on_heap) {}

  Arena& arena() override { return arena_; }

  void gradient(std::int64_t samples) override {
    SKEIN_CHECK(samples >= 1, "gradient of {} samples", samples);
    const Span x = arena_.parameters(), gradients = arena_.gradients();
    const double deviation = noise_ / std::sqrt(static_cast<double>(samples));
    loss_ = 0;
    for (std::size_t i = 0; i < centre_.size(); ++i) {
      const double distance = x.host()[i] - centre_[i];
      const double slope = spectrum_[i] * distance;
      const double noise = deviation > 0 ? deviation * rng_.normal() : 0;
      gradients.host()[i] += static_cast<float>(slope + noise);
      loss_ += 0.5 * slope * distance;
    }
  }

  double loss() const override { return loss_; }

 private:
  const std::vector<double>& spectrum_;
  std::vector<double> centre_;
  double noise_;
  Rng rng_;
  Arena arena_;
  double loss_ = 0;
};

class Quadratic final : public Objective {
 public:
  explicit Quadratic(const ObjectiveOptions& options)
      : options_(options),
        rng_(options.seed),
        spectrum_(
            geometric_spectrum(options.dimension ? options.dimension : 64, options.condition)),
        centre_(gaussian_vector(spectrum_.size(), rng_.split(kCentre))),
        mean_offset_(spectrum_.size()) {
    if (options_.skew == 0) return;
    for (int rank = 0; rank < options_.workers; ++rank) {
      const auto offset = raw_offset(rank);
      for (std::size_t i = 0; i < offset.size(); ++i) mean_offset_[i] += offset[i];
    }
    for (double& value : mean_offset_) value /= options_.workers;
  }

  std::unique_ptr<Replica> replica(int rank) override {
    SKEIN_CHECK(rank >= 0 && rank < options_.workers, "rank {} of {} workers", rank,
                options_.workers);
    return std::make_unique<QuadraticReplica>(
        spectrum_, centre_of(rank), options_.noise,
        rng_.split(kNoise).split(static_cast<std::uint64_t>(rank)));
  }

  std::optional<Quality> evaluate(Span parameters) override {
    const Span x = parameters.at({0, centre_.size()});
    double loss = 0;
    for (std::size_t i = 0; i < centre_.size(); ++i) {
      const double distance = x.host()[i] - centre_[i];
      loss += 0.5 * spectrum_[i] * distance * distance;
    }
    return Quality{loss, std::nullopt};
  }

 private:
  // Drawn again when needed: the offsets of all workers at once might not fit in memory.
  std::vector<double> raw_offset(int rank) const {
    return gaussian_vector(spectrum_.size(),
                           rng_.split(kOffsets).split(static_cast<std::uint64_t>(rank)));
  }

  std::vector<double> centre_of(int rank) const {
    if (options_.skew == 0) return centre_;
    std::vector<double> centre = raw_offset(rank);
    for (std::size_t i = 0; i < centre.size(); ++i) {
      centre[i] = centre_[i] + options_.skew * (centre[i] - mean_offset_[i]);
    }
    return centre;
  }

  ObjectiveOptions options_;
  Rng rng_;
  std::vector<double> spectrum_, centre_, mean_offset_;
};

}  // namespace

std::vector<double> geometric_spectrum(int dimension, double condition) {
  SKEIN_CHECK(dimension >= 1 && condition >= 1, "dimension {}, condition {}", dimension, condition);
  std::vector<double> spectrum(static_cast<std::size_t>(dimension), 1.0);
  const double log_smallest = -portable_log(condition);
  for (int i = 1; i + 1 < dimension; ++i) {
    const double place = static_cast<double>(dimension - 1 - i) / (dimension - 1);
    spectrum[static_cast<std::size_t>(i)] = portable_exp(log_smallest * place);
  }
  if (dimension > 1) spectrum.front() = 1 / condition;
  return spectrum;
}

std::unique_ptr<Objective> make_quadratic(const ObjectiveOptions& options) {
  return std::make_unique<Quadratic>(options);
}

}  // namespace skein::sim
