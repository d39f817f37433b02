#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

#include "core/portable_math.h"
#include "sim/objectives/kinds.h"
#include "sim/objectives/synthetic.h"
#include "sim/partition.h"
#include "skein/error.h"

namespace skein::sim {
namespace {

constexpr std::size_t kClasses = 10, kTrainSamples = 8192, kTestSamples = 2048;
constexpr int kDefaultFeatures = 32, kMaxFeatures = 4096;
constexpr double kPenalty = 1e-4;  // L2, on every parameter: makes the loss strongly convex

enum LogisticStream : std::uint64_t { kCentres, kTrain, kTest, kPartition, kOrder };

using PerClass = std::array<double, kClasses>;

// The parameters, or sums of gradients, in double.
struct LinearModel {
  std::vector<double> weight;  // feature by feature, so that the inner loops run over the classes
  PerClass bias{};

  explicit LinearModel(std::size_t features) : weight(features * kClasses) {}

  void load(const Arena& layout, Span plane) {
    const Span weights = plane.at(layout.slots()[0].range),
               biases = plane.at(layout.slots()[1].range);
    std::copy(weights.host().begin(), weights.host().end(), weight.begin());
    std::copy(biases.host().begin(), biases.host().end(), bias.begin());
  }

  PerClass logits(std::span<const float> input) const {
    PerClass sums = bias;
    const double* row = weight.data();
    for (const double x : input) {
      for (std::size_t k = 0; k < kClasses; ++k) sums[k] += x * row[k];
      row += kClasses;
    }
    return sums;
  }

  void add_outer(std::span<const float> input, const PerClass& errors) {
    double* row = weight.data();
    for (const double x : input) {
      for (std::size_t k = 0; k < kClasses; ++k) row[k] += x * errors[k];
      row += kClasses;
    }
    for (std::size_t k = 0; k < kClasses; ++k) bias[k] += errors[k];
  }

  double squared_norm() const {
    double sum = 0;
    for (const double w : weight) sum += w * w;
    for (const double b : bias) sum += b * b;
    return sum;
  }
};

Arena make_arena(std::size_t features) {
  return Arena({{"weight", features * kClasses}, {"bias", kClasses}}, allocate_on_heap);
}

// Cross-entropy of one sample; turns the logits into its gradient by them.
double cross_entropy(PerClass& logits, std::size_t label) {
  const double largest = *std::max_element(logits.begin(), logits.end());
  const double own = logits[label] - largest;
  double sum = 0;
  for (double& value : logits) sum += value = portable_exp(value - largest);
  for (double& value : logits) value /= sum;
  logits[label] -= 1;
  return portable_log(sum) - own;
}

class LogisticReplica final : public Replica {
 public:
  LogisticReplica(const Samples& samples, SampleStream stream)
      : samples_(samples),
        stream_(std::move(stream)),
        arena_(make_arena(samples.features)),
        model_(samples.features) {}

  Arena& arena() override { return arena_; }

  void gradient(std::int64_t samples) override {
    SKEIN_CHECK(samples >= 1, "gradient of {} samples", samples);
    model_.load(arena_, arena_.parameters());
    LinearModel sums(samples_.features);
    double loss = 0;
    for (const std::uint32_t number : stream_.next(samples)) {
      const auto input = samples_.input(number);
      PerClass values = model_.logits(input);
      loss += cross_entropy(values, static_cast<std::size_t>(samples_.labels[number]));
      sums.add_outer(input, values);
    }
    const auto count = static_cast<double>(samples);
    add(sums.weight, model_.weight, count, arena_.slots()[0].range);
    add(sums.bias, model_.bias, count, arena_.slots()[1].range);
    loss_ = loss / count + 0.5 * kPenalty * model_.squared_norm();
  }

  double loss() const override { return loss_; }

 private:
  void add(std::span<const double> sums, std::span<const double> values, double count,
           Range range) {
    const Span gradients = arena_.gradients().at(range);
    for (std::size_t i = 0; i < sums.size(); ++i) {
      gradients.host()[i] += static_cast<float>(sums[i] / count + kPenalty * values[i]);
    }
  }

  const Samples& samples_;
  SampleStream stream_;
  Arena arena_;
  LinearModel model_;
  double loss_ = 0;
};

class Logistic final : public Objective {
 public:
  Logistic(const ObjectiveOptions& options, std::size_t features)
      : rng_(options.seed), layout_(make_arena(features)), model_(features) {
    const ClassCentres centres(static_cast<int>(kClasses), features, rng_.split(kCentres));
    train_ = centres.draw(kTrainSamples, rng_.split(kTrain));
    test_ = centres.draw(kTestSamples, rng_.split(kTest));
    held_ = partition(train_.labels, static_cast<int>(kClasses), options.workers, options.dirichlet,
                      rng_.split(kPartition)());
  }

  std::unique_ptr<Replica> replica(int rank) override {
    SKEIN_CHECK(rank >= 0 && static_cast<std::size_t>(rank) < held_.size(), "rank {} of {} workers",
                rank, held_.size());
    SampleStream stream(held_[static_cast<std::size_t>(rank)],
                        rng_.split(kOrder).split(static_cast<std::uint64_t>(rank)));
    return std::make_unique<LogisticReplica>(train_, std::move(stream));
  }

  std::optional<Quality> evaluate(Span parameters) override {
    model_.load(layout_, parameters);
    double loss = 0;
    int right = 0;
    for (std::size_t i = 0; i < test_.size(); ++i) {
      const auto label = static_cast<std::size_t>(test_.labels[i]);
      PerClass logits = model_.logits(test_.input(i));
      right += std::max_element(logits.begin(), logits.end()) == logits.begin() + label;
      loss += cross_entropy(logits, label);
    }
    const auto count = static_cast<double>(test_.size());
    return Quality{loss / count, right / count};
  }

 private:
  Rng rng_;
  Arena layout_;  // where the slots lie; its values are not used
  LinearModel model_;
  Samples train_, test_;
  std::vector<std::vector<std::uint32_t>> held_;
};

}  // namespace

std::unique_ptr<Objective> make_logistic(const ObjectiveOptions& options) {
  if (options.dimension > kMaxFeatures) {
    throw ConfigError(
        fmt::format("dimension is {}: the logistic objective expects at most {} features",
                    options.dimension, kMaxFeatures));
  }
  const int features = options.dimension ? options.dimension : kDefaultFeatures;
  return std::make_unique<Logistic>(options, static_cast<std::size_t>(features));
}

}  // namespace skein::sim
