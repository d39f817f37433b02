#include "models/model.h"

#include <gtest/gtest.h>

#include <set>

#include "torch/data_files.h"

namespace skein {
namespace {

using Shape = std::vector<std::int64_t>;
using test::expect_refused;

std::int64_t parameter_count(const Model& model) {
  std::int64_t count = 0;
  for (const auto& parameter : model.parameters()) count += parameter.numel();
  return count;
}

TEST(Models, HaveTheKnownParameterCounts) {
  const auto count = [](const char* name, const Shape& shape, std::int64_t classes,
                        const Settings& settings = {}) {
    return parameter_count(*make_model(name, shape, classes, settings));
  };
  EXPECT_EQ(count("resnet18", {3, 32, 32}, 10), 11'173'962);
  EXPECT_EQ(count("resnet18", {3, 32, 32}, 10, {{"width", "8"}}), 2724 * 8 * 8 + 257 * 8 + 10);
  EXPECT_EQ(count("resnet50", {3, 224, 224}, 1000), 25'557'032);
  EXPECT_EQ(count("mlp", {3, 32, 32}, 10), 3072 * 256 + 256 + 256 * 256 + 256 + 256 * 10 + 10);
  EXPECT_EQ(count("mlp", {3, 32, 32}, 10, {{"depth", "0"}}), 3072 * 10 + 10);
  EXPECT_EQ(count("cnn", {3, 32, 32}, 10), 90'826);
  // Embeddings, 4 blocks of 12 w² + 13 w, the last norm; the head is the embedding unless untied.
  const std::int64_t tied = 65 * 128 + 64 * 128 + 4 * (12 * 128 * 128 + 13 * 128) + 2 * 128;
  EXPECT_EQ(count("gpt", {64}, 65), tied);
  EXPECT_EQ(count("gpt", {64}, 65, {{"tied", "false"}}), tied + 65 * 128);
}

TEST(Models, TakeTheShapesTheyShould) {
  const auto logits = [](const char* name, const Shape& shape) {
    const auto model = make_model(name, shape, 7, {});
    Shape batch{2};
    batch.insert(batch.end(), shape.begin(), shape.end());
    const auto input =
        shape.size() == 1 ? torch::randint(7, batch, torch::kInt64) : torch::rand(batch);
    return model->forward(input).sizes().vec();
  };
  for (const char* name : {"mlp", "cnn", "resnet18", "resnet50"}) {
    EXPECT_EQ(logits(name, {1, 28, 28}), (Shape{2, 7})) << name;
    EXPECT_EQ(logits(name, {3, 33, 47}), (Shape{2, 7})) << name;
  }
  EXPECT_EQ(logits("cnn", {3, 8, 9}), (Shape{2, 7}));
  EXPECT_EQ(logits("gpt", {16}), (Shape{2, 16, 7}));
}

TEST(Models, AStepDownTheGradientLowersTheLoss) {
  for (const std::string& name : model_names()) {
    torch::manual_seed(1);
    const bool text = name == "gpt";
    const Shape shape = text ? Shape{12} : Shape{3, 32, 32};
    const auto model = make_model(name, shape, 5, {});
    const auto input =
        text ? torch::randint(5, {4, 12}, torch::kInt64) : torch::randn({4, 3, 32, 32});
    const auto target = torch::randint(5, text ? Shape{4, 12} : Shape{4}, torch::kInt64);
    const auto before = loss_of(model->forward(input), target);
    before.backward();
    {
      torch::NoGradGuard guard;
      for (auto& parameter : model->parameters()) {
        ASSERT_TRUE(parameter.grad().defined()) << name << " has an unused parameter";
        parameter -= 1e-3 * parameter.grad();
      }
    }
    EXPECT_LT(loss_of(model->forward(input), target).item<float>(), before.item<float>()) << name;
  }
}

TEST(Models, StartFromTheSeedOfTorchsGenerator) {
  for (const std::string& name : model_names()) {
    const auto make = [&](std::uint64_t seed) {
      torch::manual_seed(seed);
      const auto model = make_model(name, name == "gpt" ? Shape{8} : Shape{3, 32, 32}, 5, {});
      return torch::nn::utils::parameters_to_vector(model->parameters());
    };
    const auto first = make(1);
    EXPECT_TRUE(torch::equal(first, make(1))) << name;
    EXPECT_FALSE(torch::equal(first, make(2))) << name;
  }
}

// The order in which forward first reads parameters, seen by the operators' inputs.
TEST(Models, RegisterParametersInTheOrderOfTheirUse) {
  static std::vector<const void*>* reads = nullptr;  // the callback can hold no state
  const auto note = [](const at::RecordFunction& call) -> std::unique_ptr<at::ObserverContext> {
    for (const auto& input : call.inputs())
      if (input.isTensor() && input.toTensor().defined() && input.toTensor().has_storage())
        reads->push_back(input.toTensor().data_ptr());
    return nullptr;
  };
  for (const std::string& name : model_names()) {
    const auto model = make_model(name, name == "gpt" ? Shape{8} : Shape{3, 32, 32}, 5, {});
    const auto input =
        name == "gpt" ? torch::zeros({2, 8}, torch::kInt64) : torch::rand({2, 3, 32, 32});
    std::vector<const void*> seen;
    reads = &seen;
    const auto handle = at::addThreadLocalCallback(
        at::RecordFunctionCallback(note).needsInputs(true).scopes({at::RecordScope::FUNCTION}));
    model->forward(input);
    at::removeCallback(handle);
    std::vector<std::string> used;
    std::set<std::string> known;
    for (const void* read : seen)
      for (const auto& item : model->named_parameters())
        if (item.value().data_ptr() == read && known.insert(item.key()).second)
          used.push_back(item.key());
    EXPECT_EQ(used, model->named_parameters().keys()) << name;
  }
}

TEST(Models, GptSeesNoLaterToken) {
  torch::manual_seed(3);
  const auto model = make_model("gpt", {10}, 6, {{"width", "32"}, {"depth", "2"}});
  const auto tokens = torch::randint(6, {1, 10}, torch::kInt64);
  const auto before = model->forward(tokens);
  for (std::int64_t at = 0; at < 10; ++at) {
    auto changed = tokens.clone();
    changed[0][at] = (changed[0][at] + 1) % 6;
    const auto after = model->forward(changed);
    EXPECT_TRUE(torch::equal(after.narrow(1, 0, at), before.narrow(1, 0, at))) << at;
    for (std::int64_t later = at; later < 10; ++later)
      EXPECT_FALSE(torch::equal(after[0][later], before[0][later])) << at << " " << later;
  }
}

TEST(Models, WorkersThatShareABatchComputeWhatOneWould) {
  for (const char* name : {"mlp", "cnn"}) {
    const auto model = make_model(name, {3, 32, 32}, 10, {});
    const auto input = torch::randn({6, 3, 32, 32});
    const auto whole = model->forward(input);
    const auto parts =
        torch::cat({model->forward(input.narrow(0, 0, 2)), model->forward(input.narrow(0, 2, 4))});
    EXPECT_TRUE(torch::allclose(whole, parts, 1e-4, 1e-5)) << name;
  }
}

TEST(Models, SayWhatIsAllowed) {
  const auto make = [](const char* name, const Shape& shape, const Settings& settings) {
    return [=] { make_model(name, shape, 10, settings); };
  };
  expect_refused(make("vgg", {3, 32, 32}, {}), {"'vgg'", "mlp, cnn, resnet18, resnet50, gpt"});
  expect_refused(make("cnn", {3, 32, 32}, {{"depth", "2"}}), {"model.depth=2", "'cnn'", "width"});
  expect_refused(make("resnet18", {3, 32, 32}, {{"width", "0"}}), {"model.width=0", "1 to 4096"});
  expect_refused(make("resnet50", {3, 32, 32}, {{"width", "2"}}), {"model.width=2", "no settings"});
  expect_refused(make("mlp", {3, 32, 32}, {{"width", "big"}}), {"model.width=big", "whole number"});
  expect_refused(make("gpt", {64}, {{"heads", "3"}}), {"model.width=128", "model.heads=3"});
  expect_refused(make("gpt", {64}, {{"tied", "yes"}}), {"model.tied=yes", "true or false"});
  expect_refused(make("gpt", {3, 32, 32}, {}), {"gpt", "(3, 32, 32)", "text:FILE"});
  for (const char* name : {"mlp", "cnn", "resnet18", "resnet50"})
    expect_refused(make(name, {64}, {}), {name, "(64)", "'gpt'"});
  expect_refused(make("cnn", {3, 7, 32}, {}), {"at least 8 x 8", "7 x 32"});
}

TEST(Loss, IsTheMeanOverAllPredictions) {
  const auto logits = torch::randn({2, 3, 4});
  const auto target = torch::tensor({{0, 1, 2}, {3, 0, 1}}, torch::kInt64);
  const auto probabilities = torch::log_softmax(logits, -1);
  double sum = 0;
  for (std::int64_t b = 0; b < 2; ++b)
    for (std::int64_t t = 0; t < 3; ++t)
      sum -= probabilities[b][t][target[b][t].item<std::int64_t>()].item<double>();
  EXPECT_NEAR(loss_of(logits, target).item<double>(), sum / 6, 1e-5);
  EXPECT_NEAR(loss_of(logits[0], target[0]).item<double>(),
              torch::nn::functional::cross_entropy(logits[0], target[0]).item<double>(), 1e-6);
}

TEST(Score, CountsRightPredictions) {
  const auto logits = torch::tensor({{0.1f, 2.0f}, {3.0f, 1.0f}, {0.0f, 1.0f}});
  const Score score = count_correct(logits, torch::tensor({1, 0, 0}, torch::kInt64));
  EXPECT_EQ(score.correct, 2);
  EXPECT_EQ(score.predictions, 3);
}

}  // namespace
}  // namespace skein
