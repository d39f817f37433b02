#include <fmt/format.h>

#include <map>
#include <numeric>

#include "data/open.h"
#include "kernels/kernels.h"
#include "models/model.h"
#include "sim/partition.h"
#include "skein/error.h"
#include "torch/binding.h"
#include "train/simulate/place.h"
#include "train/simulate/recorded_step.h"
#include "train/simulate/samples.h"
#include "train/threads.h"
#include "train/virtual_cluster.h"

namespace skein {
namespace {

enum RandomStream : std::uint64_t { kPartition, kOrder };

std::vector<int> labels_of(const DataSets& data) {
  std::vector<int> labels;
  for_each_block(data.train->size(), [&](std::span<const std::uint32_t> indices) {
    const Batch batch = data.train->get(indices);
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
  BoundModel(const TrainOptions& job, const Dataset& data, Place& place)
      : model(make(job, data, place)), binding(*model, allocator_of(place.queue.get())) {}

  static std::shared_ptr<Model> make(const TrainOptions& job, const Dataset& data, Place& place) {
    torch::manual_seed(job.seed);
    auto made = make_model(job.model, data.sample_shape(), data.classes(), job.model_settings);
    place.compute.take(*made);
    return made;
  }

  std::shared_ptr<Model> model;
  Binding binding;
};

class ModelReplica final : public sim::Replica {
 public:
  ModelReplica(const TrainOptions& job, const Dataset& data, Place& place, const Samples& samples,
               TorchGraphs* graphs, sim::SampleStream stream)
      : place_(place),
        samples_(samples),
        stream_(std::move(stream)),
        bound_(job, data, place),
        loss_(torch::zeros({}, torch::TensorOptions(place.compute.device()))) {
    if (graphs && samples.held())
      recorded_.emplace([graphs](const auto& work) { return graphs->record(work); }, samples,
                        [this](const Batch& batch) { add_gradient(batch); });
  }

  Arena& arena() override { return bound_.binding.arena(); }
  const std::vector<NamedTensor>& buffers() const { return bound_.binding.float_buffers(); }

  void gradient(std::int64_t samples) override {
    SKEIN_CHECK(samples >= 1, "gradient of {} samples", samples);
    const auto indices = stream_.next(samples);
    if (recorded_)
      recorded_->run(indices);
    else
      add_gradient(samples_.get(indices));
  }

  double loss() const override { return loss_.item<double>(); }

 private:
  void add_gradient(const Batch& batch) {
    torch::Tensor loss;
    {
      const Autocast precision = place_.compute.autocast();
      loss = loss_of(bound_.model->forward(batch.data), batch.target);
    }
    loss.backward();
    loss_.copy_(loss.detach());
  }

  Place& place_;
  const Samples& samples_;
  sim::SampleStream stream_;
  BoundModel bound_;
  torch::Tensor loss_;  // of the last gradient, in one place
  std::optional<RecordedStep> recorded_;
};

class ModelObjective final : public sim::Objective {
 public:
  ModelObjective(const TrainOptions& job, int workers, std::optional<double> dirichlet, bool graphs)
      : job_(job),
        workers_(workers),
        place_(job_, 0),
        data_(open_data(job.data, job.data_settings, job.seed)),
        evaluated_(job, *data_.train, place_),
        train_(*data_.train, place_.compute),
        test_(*data_.test, place_.compute) {
    evaluated_.model->eval();
    if (place_.queue && graphs) graphs_.emplace();
    if (dirichlet)
      held_ = sim::partition(labels_of(data_), static_cast<int>(data_.train->classes()), workers,
                             dirichlet, Rng(job.seed).split(kPartition)());
  }

  std::unique_ptr<sim::Replica> replica(int rank) override {
    SKEIN_CHECK(rank >= 0 && rank < workers_, "rank {} of {} workers", rank, workers_);
    sim::SampleStream stream(samples_of(rank),
                             Rng(job_.seed).split(kOrder).split(static_cast<std::uint64_t>(rank)));
    auto replica = std::make_unique<ModelReplica>(job_, *data_.train, place_, train_,
                                                  graphs_ ? &*graphs_ : nullptr, std::move(stream));
    buffers_[rank] = replica->buffers();
    return replica;
  }

  Queue* queue() override { return place_.queue.get(); }
  std::int64_t device_memory() const override { return place_.compute.memory_in_use(); }

  std::optional<sim::Quality> evaluate(Span parameters) override {
    const torch::NoGradGuard no_grad;
    const OnQueue scope(queue());
    const Span own = evaluated_.binding.arena().parameters();
    SKEIN_CHECK(parameters.count == own.count, "{} parameters, expected {}", parameters.count,
                own.count);
    copy(own, parameters);
    average_buffers();
    const torch::TensorOptions there(place_.compute.device());
    torch::Tensor loss = torch::zeros({}, there.dtype(torch::kFloat64));
    torch::Tensor correct = torch::zeros({}, there.dtype(torch::kInt64));
    double predictions = 0;
    for_each_block(test_.size(), [&](std::span<const std::uint32_t> indices) {
      const Batch batch = test_.get(indices);
      const Autocast precision = place_.compute.autocast();
      const torch::Tensor logits = evaluated_.model->forward(batch.data);
      const auto count = static_cast<double>(batch.target.numel());
      loss += loss_of(logits, batch.target).to(torch::kFloat64) * count;
      correct += logits.argmax(-1).eq(batch.target).sum();
      predictions += count;
    });
    return sim::Quality{loss.item<double>() / predictions,
                        static_cast<double>(correct.item<std::int64_t>()) / predictions};
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
  Place place_;
  DataSets data_;
  BoundModel evaluated_;
  Samples train_, test_;
  std::optional<TorchGraphs> graphs_;                // where steps are recorded
  std::vector<std::vector<std::uint32_t>> held_;     // empty: everyone holds everything
  std::map<int, std::vector<NamedTensor>> buffers_;  // of each rank's latest replica
};

}  // namespace

std::unique_ptr<sim::Objective> make_model_objective(const TrainOptions& job, int workers,
                                                     std::optional<double> dirichlet, bool graphs) {
  if (workers < 1)
    throw ConfigError(fmt::format("a model for {} workers: expected at least 1", workers));
  use_threads(1);
  return std::make_unique<ModelObjective>(job, workers, dirichlet, graphs);
}

}  // namespace skein
