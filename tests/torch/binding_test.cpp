#include "torch/binding.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <sstream>

#include "skein/error.h"
#include "test_net.h"

namespace skein {
namespace {

using test::contains;
using test::EveryLayer;
using test::message_of;
using test::Names;
using test::names_of;
using test::Tied;

std::vector<torch::Tensor> copies_of(const std::vector<torch::Tensor>& tensors) {
  std::vector<torch::Tensor> copies;
  for (const auto& tensor : tensors) copies.push_back(tensor.detach().clone());
  return copies;
}

// Counts the planes that are alive.
Allocate counting(std::shared_ptr<int> alive) {
  struct Counted final : Memory {
    Counted(std::size_t count, std::shared_ptr<int> alive)
        : memory(allocate_on_heap(count)), alive(std::move(alive)) {
      ++*this->alive;
    }
    ~Counted() override { --*alive; }
    Span span() const override { return memory->span(); }
    std::unique_ptr<Memory> memory;
    std::shared_ptr<int> alive;
  };
  return [alive](std::size_t count) { return std::make_unique<Counted>(count, alive); };
}

TEST(Binding, PointsEveryParameterAtItsSlotAndKeepsValuesAndShapes) {
  EveryLayer net;
  const auto before = copies_of(net->parameters());
  const Binding binding(*net, allocate_on_heap);

  const auto parameters = net->named_parameters();
  ASSERT_EQ(static_cast<std::size_t>(binding.slots()), parameters.size());
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    const Slot& slot = binding.arena().slots()[i];
    const torch::Tensor& parameter = parameters[i].value();
    EXPECT_EQ(slot.name, parameters[i].key());
    EXPECT_EQ(parameter.data_ptr<float>(), binding.arena().parameters().at(slot.range).data);
    EXPECT_EQ(parameter.grad().data_ptr<float>(), binding.arena().gradients().at(slot.range).data);
    EXPECT_TRUE(torch::equal(parameter, before[i])) << slot.name;
    EXPECT_EQ(parameter.grad().sizes(), parameter.sizes());
    EXPECT_TRUE(parameter.storage().is_alias_of(binding.parameter_plane().storage()));
    EXPECT_TRUE(parameter.grad().storage().is_alias_of(binding.gradient_plane().storage()));
  }
}

TEST(Binding, BackwardAddsToTheGradientPlane) {
  EveryLayer net, reference;
  for (std::size_t i = 0; i < net->parameters().size(); ++i)
    reference->parameters()[i].data().copy_(net->parameters()[i]);
  Binding binding(*net, allocate_on_heap);
  for (int pass = 0; pass < 2; ++pass) {  // accumulates
    test::loss_at(net, pass).backward();
    test::loss_at(reference, pass).backward();
  }
  for (int slot = 0; slot < binding.slots(); ++slot) {
    const auto range = binding.arena().slots()[static_cast<std::size_t>(slot)].range;
    const auto expected = reference->parameters()[static_cast<std::size_t>(slot)].grad().flatten();
    const auto got = torch::from_blob(binding.arena().gradients().at(range).data,
                                      {static_cast<std::int64_t>(range.count)});
    EXPECT_TRUE(torch::equal(got, expected)) << binding.names_of_slot(slot)[0];
  }
}

TEST(Binding, TiedWeightsHaveOneSlotKnownByTheFirstName) {
  Tied net;
  const Binding binding(*net, allocate_on_heap);
  EXPECT_EQ(names_of(binding.arena().slots()), (Names{"encoder", "bias"}));
  EXPECT_EQ(binding.names_of_slot(0), (Names{"encoder", "decoder"}));
  EXPECT_EQ(net->decoder.data_ptr(), binding.arena().parameters().data);
}

TEST(Binding, LeavesFrozenParametersAndBuffersWhereTheyAre) {
  EveryLayer net;
  net->conv->weight.requires_grad_(false);
  const void* weight = net->conv->weight.data_ptr();
  const void* mean = net->norm->running_mean.data_ptr();
  const Binding binding(*net, allocate_on_heap);

  EXPECT_EQ(net->conv->weight.data_ptr(), weight);
  EXPECT_FALSE(net->conv->weight.grad().defined());
  EXPECT_EQ(net->norm->running_mean.data_ptr(), mean);
  EXPECT_EQ(names_of(binding.frozen_parameters()), (Names{"conv.weight"}));
  EXPECT_EQ(names_of(binding.float_buffers()), (Names{"norm.running_mean", "norm.running_var"}));
  EXPECT_EQ(names_of(binding.integer_buffers()), (Names{"norm.num_batches_tracked"}));
  EXPECT_EQ(binding.arena().slots()[0].name, "conv.bias");
}

TEST(Binding, MakesParametersContiguous) {
  torch::nn::Linear net(3, 5);
  net->weight.set_data(torch::arange(15, torch::kFloat32).reshape({3, 5}).t());
  const auto before = net->weight.detach().clone();
  const Binding binding(*net, allocate_on_heap);
  EXPECT_TRUE(net->weight.is_contiguous());
  EXPECT_TRUE(torch::equal(net->weight, before));
}

TEST(Binding, KeepsGradientsThatExist) {
  torch::nn::Linear net(3, 2);
  net(torch::ones({1, 3})).sum().backward();
  const Binding binding(*net, allocate_on_heap);
  EXPECT_TRUE(torch::equal(net->weight.grad(), torch::ones({2, 3})));
  EXPECT_EQ(net->weight.grad().data_ptr(), binding.arena().gradients().data);
}

TEST(Binding, RefusesOtherTypesByName) {
  EveryLayer net;
  net->head->to(torch::kFloat64);
  const void* first = net->conv->weight.data_ptr();
  const auto message =
      message_of<ConfigError>([&] { const Binding binding(*net, allocate_on_heap); });
  EXPECT_TRUE(contains(message, {"'head.weight'"}));
  EXPECT_TRUE(contains(message, {"Double"}));
  EXPECT_TRUE(contains(message, {"float32"}));
  EXPECT_EQ(net->conv->weight.data_ptr(), first);  // untouched

  torch::nn::Linear elsewhere(2, 2);
  elsewhere->register_parameter("there", torch::empty({2}, torch::kMeta));
  EXPECT_TRUE(contains(message_of<ConfigError>([&] { Binding(*elsewhere, allocate_on_heap); }),
                       {"'there'", "on meta"}));
}

TEST(Binding, RefusesAModuleWithNothingToTrain) {
  torch::nn::Linear net(2, 2);
  for (auto& parameter : net->parameters()) parameter.requires_grad_(false);
  EXPECT_TRUE(contains(message_of<ConfigError>([&] { Binding(*net, allocate_on_heap); }),
                       {"no trainable parameter (2 frozen)"}));
}

TEST(Binding, RefusesDifferentTensorsThatShareMemory) {
  torch::nn::Sequential net(torch::nn::Linear(3, 3), torch::nn::Linear(3, 3));
  net->parameters()[2].set_data(net->parameters()[0]);
  EXPECT_TRUE(contains(message_of<ConfigError>([&] { Binding(*net, allocate_on_heap); }),
                       {"'0.weight'", "'1.weight'"}));
}

TEST(Binding, AcceptsDisjointPartsOfOneStorage) {
  torch::nn::Sequential net(torch::nn::Linear(torch::nn::LinearOptions(2, 2).bias(false)),
                            torch::nn::Linear(torch::nn::LinearOptions(2, 2).bias(false)));
  const auto both = torch::arange(8, torch::kFloat32);
  net->parameters()[0].set_data(both.slice(0, 0, 4).view({2, 2}));
  net->parameters()[1].set_data(both.slice(0, 4, 8).view({2, 2}));
  const Binding binding(*net, allocate_on_heap);
  EXPECT_TRUE(torch::equal(net->parameters()[1].flatten(), both.slice(0, 4, 8)));
}

class RebindGradients : public testing::Test {
 protected:
  // The arena's gradient of the weight, after checking that `.grad` is bound to it.
  torch::Tensor rebound() {
    binding.rebind_gradients();
    EXPECT_EQ(net->weight.grad().data_ptr(), binding.arena().gradients().data);
    EXPECT_EQ(net->weight.grad().sizes(), net->weight.sizes());
    return net->weight.grad().clone();
  }
  void fill() { binding.gradient_plane().fill_(7); }

  torch::nn::Linear net{3, 2};
  Binding binding{*net, allocate_on_heap};
};

TEST_F(RebindGradients, KeepsWhatIsBound) {
  fill();
  EXPECT_TRUE(torch::equal(rebound(), torch::full({2, 3}, 7.F)));
}

TEST_F(RebindGradients, ClearedBecomesZero) {
  fill();
  net->zero_grad(/*set_to_none=*/true);
  EXPECT_TRUE(torch::equal(rebound(), torch::zeros({2, 3})));
}

TEST_F(RebindGradients, ModuleAndOptimizerZeroGradStayInTheArena) {
  torch::optim::SGD optimizer(net->parameters(), 0.1);
  for (const bool by_module : {true, false}) {
    fill();
    by_module ? net->zero_grad(false) : optimizer.zero_grad();
    EXPECT_TRUE(torch::equal(rebound(), torch::zeros({2, 3})));
  }
}

TEST_F(RebindGradients, ReplacedIsCopied) {
  const auto mine = torch::arange(6, torch::kFloat32).reshape({3, 2}).t();
  net->weight.mutable_grad() = mine;
  EXPECT_TRUE(torch::equal(rebound(), mine));
  net->weight.mutable_grad() = mine.to_sparse();
  EXPECT_TRUE(torch::equal(rebound(), mine));
}

TEST_F(RebindGradients, RefusesAnotherShape) {
  net->weight.mutable_grad() = torch::zeros({3});
  EXPECT_TRUE(contains(message_of<ConfigError>([&] { binding.rebind_gradients(); }),
                       {"'weight'", "[3]", "[2, 3]"}));
}

TEST(Binding, RebindsParametersThatWereReplaced) {
  torch::nn::Linear net(3, 2), saved(3, 2);
  Binding binding(*net, allocate_on_heap);
  std::stringstream stream;
  torch::save(saved, stream);
  torch::load(net, stream);
  binding.rebind_parameters();
  EXPECT_EQ(net->weight.data_ptr(), binding.arena().parameters().data);
  EXPECT_TRUE(torch::equal(net->weight, saved->weight));

  net->weight.set_data(torch::zeros({4}));
  EXPECT_TRUE(
      contains(message_of<ConfigError>([&] { binding.rebind_parameters(); }), {"'weight'"}));
}

TEST(Binding, LeavesAUsableModuleBehindAndFreesTheArena) {
  const auto alive = std::make_shared<int>(0);
  EveryLayer net;
  std::vector<torch::Tensor> values;
  {
    Binding binding(*net, counting(alive));
    EXPECT_EQ(*alive, 2);
    test::loss_at(net, 0).backward();
    values = copies_of(net->parameters());
  }
  EXPECT_EQ(*alive, 0);
  for (std::size_t i = 0; i < values.size(); ++i) {
    EXPECT_TRUE(torch::equal(net->parameters()[i], values[i]));
    EXPECT_TRUE(net->parameters()[i].grad().defined());
  }
  EXPECT_FALSE(net->parameters()[0].storage().is_alias_of(net->parameters()[1].storage()));
  test::loss_at(net, 1).backward();
  const Binding again(*net, allocate_on_heap);
  test::loss_at(net, 2).backward();
}

TEST(Binding, AViewOfAParameterOutlivesTheBinding) {
  const auto alive = std::make_shared<int>(0);
  torch::nn::Linear net(3, 2);
  auto binding = std::make_unique<Binding>(*net, counting(alive));
  torch::Tensor view = net->weight.detach().flatten();
  const auto values = view.clone();
  binding.reset();
  EXPECT_EQ(*alive, 2);
  EXPECT_TRUE(torch::equal(view, values));
  view.reset();
  EXPECT_EQ(*alive, 0);
}

}  // namespace
}  // namespace skein
