#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <numeric>

#include "data/open.h"
#include "kernels/kernels.h"
#include "models/model.h"
#include "sim/partition.h"
#include "skein/error.h"
#include "torch/binding.h"
#include "train/simulate/threads.h"
#include "train/virtual_cluster.h"

namespace skein {
namespace {

constexpr std::int64_t kBlock = 250;  // samples that are read, or evaluated, at once

enum RandomStream : std::uint64_t { kPartition, kOrder };

// Calls visit(batch) for all of `data` in order, in blocks.
void for_each_block(const Dataset& data, const auto& visit) {
  for (std::int64_t next = 0; next < data.size(); next += kBlock) {
    std::vector<std::uint32_t> indices(
        static_cast<std::size_t>(std::min(kBlock, data.size() - next)));
    std::iota(indices.begin(), indices.end(), static_cast<std::uint32_t>(next));
    visit(data.get(indices));
  }
}

std::vector<int> labels_of(const DataSets& data) {
  std::vector<int> labels;
  for_each_block(*data.train, [&](const Batch& batch) {
    if (batch.target.dim() != 1)
      throw ConfigError(fmt::format(
          "dirichlet: a sample of {} has no single label; expected data with one label each",
          data.name));
    const auto* targets = batch.target.data_ptr<std::int64_t>();
    for (std::int64_t i = 0; i < batch.target.numel(); ++i)
      labels.push_back(static_cast<int>(targets[i]));
  });
  return labels;
}

// A model in an arena of its own, as `skein train` with this seed starts from it.
struct BoundModel {
  BoundModel(const TrainOptions& job, const Dataset& data)
      : model(make(job, data)), binding(*model, allocate_on_heap) {}

  static std::shared_ptr<Model> make(const TrainOptions& job, const Dataset& data) {
    torch::manual_seed(job.seed);
    return make_model(job.model, data.sample_shape(), data.classes(), job.model_settings);
  }

  std::shared_ptr<Model> model;
  Binding binding;
};

class ModelReplica final : public sim::Replica {
 public:
  ModelReplica(const TrainOptions& job, const Dataset& data, sim::SampleStream stream)
      : data_(data), stream_(std::move(stream)), bound_(job, data) {}

  Arena& arena() override { return bound_.binding.arena(); }
  const std::vector<NamedTensor>& buffers() const { return bound_.binding.float_buffers(); }

  void gradient(std::int64_t samples) override {
    SKEIN_CHECK(samples >= 1, "gradient of {} samples", samples);
    const Batch batch = data_.get(stream_.next(samples));
    const torch::Tensor loss = loss_of(bound_.model->forward(batch.data), batch.target);
    loss.backward();
    loss_ = loss.detach();
  }

  double loss() const override { return loss_.item<double>(); }

 private:
  const Dataset& data_;
  sim::SampleStream stream_;
  BoundModel bound_;
  torch::Tensor loss_;
};

class ModelObjective final : public sim::Objective {
 public:
  ModelObjective(const TrainOptions& job, int workers, std::optional<double> dirichlet)
      : job_(job),
        workers_(workers),
        data_(open_data(job.data, job.data_settings, job.seed)),
        evaluated_(job, *data_.train) {
    evaluated_.model->eval();
    if (dirichlet)
      held_ = sim::partition(labels_of(data_), static_cast<int>(data_.train->classes()), workers,
                             dirichlet, Rng(job.seed).split(kPartition)());
  }

  std::unique_ptr<sim::Replica> replica(int rank) override {
    SKEIN_CHECK(rank >= 0 && rank < workers_, "rank {} of {} workers", rank, workers_);
    sim::SampleStream stream(samples_of(rank),
                             Rng(job_.seed).split(kOrder).split(static_cast<std::uint64_t>(rank)));
    auto replica = std::make_unique<ModelReplica>(job_, *data_.train, std::move(stream));
    buffers_[rank] = replica->buffers();
    return replica;
  }

  std::optional<sim::Quality> evaluate(Span parameters) override {
    const torch::NoGradGuard no_grad;
    const Span own = evaluated_.binding.arena().parameters();
    SKEIN_CHECK(parameters.count == own.count, "{} parameters, expected {}", parameters.count,
                own.count);
    copy(own, parameters);
    average_buffers();
    double loss = 0, correct = 0, predictions = 0;
    for_each_block(*data_.test, [&](const Batch& batch) {
      const torch::Tensor logits = evaluated_.model->forward(batch.data);
      const Score score = count_correct(logits, batch.target);
      const auto count = static_cast<double>(score.predictions);
      loss += loss_of(logits, batch.target).item<double>() * count;
      correct += static_cast<double>(score.correct);
      predictions += count;
    });
    return sim::Quality{loss / predictions, correct / predictions};
  }

 private:
  std::vector<std::uint32_t> samples_of(int rank) const {
    if (!held_.empty()) return held_[static_cast<std::size_t>(rank)];
    std::vector<std::uint32_t> all(static_cast<std::size_t>(data_.train->size()));
    std::iota(all.begin(), all.end(), 0u);
    return all;
  }

  void average_buffers() {
    if (buffers_.empty()) return;
    const auto& own = evaluated_.binding.float_buffers();
    for (std::size_t i = 0; i < own.size(); ++i) {
      torch::Tensor mean = own[i].tensor.detach().zero_();
      for (const auto& [rank, buffers] : buffers_) mean.add_(buffers[i].tensor);
      mean.div_(static_cast<double>(buffers_.size()));
    }
  }

  TrainOptions job_;
  int workers_;
  DataSets data_;
  BoundModel evaluated_;
  std::vector<std::vector<std::uint32_t>> held_;     // empty: everyone holds everything
  std::map<int, std::vector<NamedTensor>> buffers_;  // of each rank's latest replica
};

}  // namespace

std::unique_ptr<sim::Objective> make_model_objective(const TrainOptions& job, int workers,
                                                     std::optional<double> dirichlet) {
  if (workers < 1)
    throw ConfigError(fmt::format("a model for {} workers: expected at least 1", workers));
  use_threads(1);
  return std::make_unique<ModelObjective>(job, workers, dirichlet);
}

}  // namespace skein
