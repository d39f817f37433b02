#include <dlfcn.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <fstream>
#include <set>
#include <span>

#include "data/open.h"
#include "data_files.h"
#include "models/model.h"
#include "skein/error.h"
#include "test_net.h"
#include "torch/binding.h"
#include "train/threads.h"
#include "train/virtual_cluster.h"

namespace skein {
namespace {

using test::contains;
using test::message_of;

TrainOptions small_model(const std::string& model = "mlp") {
  TrainOptions job;
  job.model = model;
  job.device = "cpu";
  job.seed = 7;
  job.data_settings = {{"train", "120"}, {"test", "60"}};
  if (model == "mlp") job.model_settings = {{"width", "16"}};
  return job;
}

std::vector<float> values(Span span) { return {span.host().begin(), span.host().end()}; }

bool bit_equal(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

void sgd_step(sim::Replica& replica, std::int64_t samples, float rate) {
  const Span parameters = replica.arena().parameters(), gradients = replica.arena().gradients();
  replica.gradient(samples);
  for (std::size_t i = 0; i < parameters.count; ++i) {
    parameters.host()[i] -= rate * gradients.host()[i];
    gradients.host()[i] = 0;
  }
}

// What `skein train` starts from.
std::shared_ptr<Model> plain_model(const TrainOptions& job, const DataSets& data) {
  torch::manual_seed(job.seed);
  return make_model(job.model, data.train->sample_shape(), data.train->classes(),
                    job.model_settings);
}

TEST(ModelObjective, ReplicasStartFromWhatTrainingStartsFrom) {
  const TrainOptions job = small_model();
  const auto objective = make_model_objective(job, 3, std::nullopt);
  const auto first = objective->replica(0);
  sgd_step(*first, 4, 0.1f);
  const auto second = objective->replica(1), third = objective->replica(2);
  EXPECT_TRUE(bit_equal(values(second->arena().parameters()), values(third->arena().parameters())));
  const auto plain = plain_model(job, open_data(job.data, job.data_settings, job.seed));
  const Binding binding(*plain, allocate_on_heap);
  EXPECT_TRUE(
      bit_equal(values(second->arena().parameters()), values(binding.arena().parameters())));
  EXPECT_NE(first->arena().parameters().data, second->arena().parameters().data);
}

// Batches of all samples, so that the plain module sees the same ones, in another order.
TEST(ModelObjective, AddsTheMeanGradientOfAPlainModule) {
  for (const std::string model : {"mlp", "cnn"}) {
    const TrainOptions job = small_model(model);
    const auto objective = make_model_objective(job, 2, std::nullopt);
    const auto replica = objective->replica(1);
    const auto data = open_data(job.data, job.data_settings, job.seed);
    const auto plain = plain_model(job, data);
    std::vector<std::uint32_t> all(120);
    for (std::uint32_t i = 0; i < 120; ++i) all[i] = i;
    const Batch batch = data.train->get(all);
    const auto loss = loss_of(plain->forward(batch.data), batch.target);
    loss.backward();

    replica->gradient(120);
    EXPECT_NEAR(replica->loss(), loss.item<double>(), 1e-5);
    const auto once = values(replica->arena().gradients());
    std::size_t slot = 0;
    for (const auto& parameter : plain->parameters()) {
      const Range range = replica->arena().slots()[slot++].range;
      const auto expected = parameter.grad().contiguous().flatten();
      for (std::size_t i = 0; i < range.count; ++i)
        ASSERT_NEAR(once[range.offset + i], expected.data_ptr<float>()[i], 1e-5) << model << slot;
    }
    replica->gradient(120);
    const auto twice = replica->arena().gradients();
    for (std::size_t i = 0; i < once.size(); ++i)
      ASSERT_NEAR(twice.host()[i], 2 * once[i], 1e-5) << i;
  }
}

TEST(ModelObjective, TrainingLowersTheLoss) {
  TrainOptions job = small_model("cnn");
  job.model_settings = {{"width", "4"}};
  job.data_settings["train"] = "1000";
  const auto objective = make_model_objective(job, 1, std::nullopt);
  const auto replica = objective->replica(0);
  const auto before = objective->evaluate(replica->arena().parameters());
  for (int i = 0; i < 80; ++i) sgd_step(*replica, 32, 0.1f);
  const auto after = objective->evaluate(replica->arena().parameters());
  ASSERT_TRUE(before && after);
  EXPECT_LT(after->loss, 0.9 * before->loss);
  ASSERT_TRUE(after->accuracy);
  EXPECT_GT(*after->accuracy, *before->accuracy);
  EXPECT_LE(*after->accuracy, 1);
}

TEST(ModelObjective, EvaluatesAsThePlainModuleDoes) {
  const TrainOptions job = small_model();
  const auto objective = make_model_objective(job, 1, std::nullopt);
  const auto quality = objective->evaluate(objective->replica(0)->arena().parameters());
  const auto data = open_data(job.data, job.data_settings, job.seed);
  std::vector<std::uint32_t> all(60);
  for (std::uint32_t i = 0; i < 60; ++i) all[i] = i;
  const Batch batch = data.test->get(all);
  const auto logits = plain_model(job, data)->forward(batch.data);
  ASSERT_TRUE(quality && quality->accuracy);
  EXPECT_NEAR(quality->loss, loss_of(logits, batch.target).item<double>(), 1e-6);
  EXPECT_EQ(*quality->accuracy, double(count_correct(logits, batch.target).correct) / 60);
}

TEST(ModelObjective, EvaluatingDisturbsNoReplica) {
  TrainOptions job = small_model("resnet18");
  job.data_settings["test"] = "2";
  const auto objective = make_model_objective(job, 1, std::nullopt);
  const auto run = [&](bool evaluating) {
    const auto replica = objective->replica(0);
    for (int i = 0; i < 2; ++i) {
      if (evaluating) objective->evaluate(replica->arena().parameters());
      sgd_step(*replica, 2, 0.01f);
    }
    return values(replica->arena().parameters());
  };
  EXPECT_TRUE(bit_equal(run(false), run(true)));
}

TEST(ModelObjective, EvaluatesWithTheMeanBuffersOfTheReplicas) {
  TrainOptions job = small_model("resnet18");
  job.data_settings["test"] = "2";
  const auto objective = make_model_objective(job, 2, std::nullopt);
  const auto first = objective->replica(0);
  const auto parameters = first->arena().parameters();
  const double fresh = objective->evaluate(parameters)->loss;
  first->gradient(2);
  const double trained = objective->evaluate(parameters)->loss;
  EXPECT_NE(trained, fresh);
  const auto second = objective->replica(1);
  const double mixed = objective->evaluate(parameters)->loss;
  EXPECT_NE(mixed, trained);
  EXPECT_NE(mixed, fresh);
  EXPECT_EQ(mixed, objective->evaluate(parameters)->loss);
  objective->replica(0);  // anew
  EXPECT_EQ(objective->evaluate(parameters)->loss, fresh);
}

TEST(ModelObjective, TheSameSeedGivesTheSameBits) {
  const auto run = [](std::uint64_t seed) {
    TrainOptions job = small_model();
    job.seed = seed;
    const auto objective = make_model_objective(job, 2, 0.5);
    const auto replica = objective->replica(1);
    for (int i = 0; i < 5; ++i) sgd_step(*replica, 8, 0.1f);
    return values(replica->arena().parameters());
  };
  EXPECT_TRUE(bit_equal(run(3), run(3)));
  EXPECT_FALSE(bit_equal(run(3), run(4)));
}

TEST(ModelObjective, WorkersDrawDifferentSamples) {
  const auto objective = make_model_objective(small_model(), 2, std::nullopt);
  const auto first = objective->replica(0), second = objective->replica(1);
  first->gradient(8);
  second->gradient(8);
  EXPECT_NE(first->loss(), second->loss());
}

// The bias gradient of the output is, class by class, the mean of probability − (label == class):
// with equal logits it shows the histogram of the labels.
std::vector<double> label_shares(sim::Replica& replica, std::int64_t samples) {
  const Arena& arena = replica.arena();
  for (float& value : arena.parameters().host()) value = 0;
  replica.gradient(samples);
  const Span bias = arena.gradients().at(arena.slots().back().range);
  std::vector<double> shares;
  for (const float gradient : bias.host()) shares.push_back(0.1 - gradient);
  return shares;
}

double most(const std::vector<double>& shares) {
  return *std::max_element(shares.begin(), shares.end());
}

TEST(ModelObjective, DirichletGivesWorkersDifferentLabels) {
  TrainOptions job = small_model();
  job.data_settings["train"] = "400";
  const auto skewed = make_model_objective(job, 4, 0.05), even = make_model_objective(job, 4, {});
  std::set<std::ptrdiff_t> favourites;
  for (int rank = 0; rank < 4; ++rank) {
    const auto shares = label_shares(*skewed->replica(rank), 200);
    EXPECT_GT(most(shares), 0.2) << rank;
    favourites.insert(std::max_element(shares.begin(), shares.end()) - shares.begin());
    EXPECT_LT(most(label_shares(*even->replica(rank), 400)), 0.2) << rank;
  }
  EXPECT_GT(favourites.size(), 1u);
}

TEST(ModelObjective, ComputesWithOneThread) {
  use_threads(2);
  EXPECT_EQ(at::get_num_threads(), 2);
  make_model_objective(small_model(), 1, std::nullopt);
  EXPECT_EQ(at::get_num_threads(), 1);
  if (void* get = dlsym(RTLD_DEFAULT, "openblas_get_num_threads")) {
    EXPECT_EQ(reinterpret_cast<int (*)()>(get)(), 1);
  }
}

TEST(ModelObjective, RefusesWhatCannotBe) {
  EXPECT_TRUE(contains(message_of<ConfigError>([] { make_model_objective(small_model(), 2, 0.0); }),
                       {"dirichlet"}));
  EXPECT_TRUE(contains(
      message_of<ConfigError>([] { make_model_objective(small_model(), 0, std::nullopt); }),
      {"0 workers", "at least 1"}));
  EXPECT_THROW(make_model_objective(small_model("no such model"), 1, std::nullopt), ConfigError);
}

TEST(ModelObjective, TrainsTextButCannotSkewIt) {
  const test::DataFolder folder;
  std::string text;
  for (int i = 0; i < 3000; ++i) text += i % 3 == 0 ? 'a' : 'b';
  std::ofstream(folder / "text") << text;
  TrainOptions job;
  job.model = "gpt";
  job.device = "cpu";
  job.model_settings = {{"width", "8"}, {"depth", "1"}, {"heads", "2"}};
  job.data = "text:" + (folder / "text");
  job.data_settings = {{"context", "16"}};
  const auto objective = make_model_objective(job, 1, std::nullopt);
  const auto replica = objective->replica(0);
  replica->gradient(4);
  EXPECT_NEAR(replica->loss(), std::log(2), 0.1);
  EXPECT_NEAR(objective->evaluate(replica->arena().parameters())->loss, std::log(2), 0.1);
  EXPECT_TRUE(contains(message_of<ConfigError>([&] { make_model_objective(job, 1, 0.5); }),
                       {"dirichlet", "text", "label"}));
}

}  // namespace
}  // namespace skein
