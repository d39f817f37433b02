#include <gtest/gtest.h>
#include <torch/torch.h>

#include "skein/error.h"
#include "test_net.h"
#include "torch/gradient_hooks.h"

namespace skein {
namespace {

using test::EveryLayer;
using Slots = std::vector<int>;

Slots sorted(Slots slots) {
  std::sort(slots.begin(), slots.end());
  return slots;
}

// Three layers of a weight and a bias each: slots 0 … 5.
struct Layers : torch::nn::Module {
  Layers() {
    for (const char* name : {"a", "b", "c"})
      layers.push_back(register_module(name, torch::nn::Linear(3, 3)));
  }
  torch::Tensor through(std::vector<std::size_t> order) {
    torch::Tensor x = torch::ones({2, 3});
    for (const std::size_t i : order) x = torch::tanh(layers[i](x));
    return x.sum();
  }
  std::vector<torch::nn::Linear> layers;
};

class Hooks : public testing::Test {
 protected:
  std::vector<int> take() { return std::exchange(reported, {}); }

  Layers net;
  Binding binding{net, allocate_on_heap};
  std::vector<int> reported;
  std::unique_ptr<GradientHooks> hooks =
      std::make_unique<GradientHooks>(binding, [this](int slot) { reported.push_back(slot); });
};

TEST_F(Hooks, ReportsLaterLayersFirst) {
  net.through({0, 1, 2}).backward();
  const auto order = take();
  ASSERT_EQ(order.size(), 6U);
  for (std::size_t i = 0; i < 6; ++i) EXPECT_EQ(order[i] / 2, 2 - static_cast<int>(i) / 2);
}

TEST_F(Hooks, ReportsAgainInTheNextBackward) {
  for (int pass = 0; pass < 3; ++pass) {
    net.through({0, 1, 2}).backward();
    EXPECT_EQ(sorted(take()), (Slots{0, 1, 2, 3, 4, 5}));
  }
}

TEST_F(Hooks, DoesNotReportUnusedParameters) {
  net.through({0, 2}).backward();
  EXPECT_EQ(sorted(take()), (Slots{0, 1, 4, 5}));
}

TEST_F(Hooks, ReportsALayerUsedTwiceOnceAndLast) {
  net.through({0, 1, 0}).backward();
  const auto order = take();
  EXPECT_EQ(sorted(order), (Slots{0, 1, 2, 3}));
  EXPECT_LT(order[0], 4);
  EXPECT_EQ(sorted((std::vector<int>{order[2], order[3]})), (Slots{0, 1}));
}

TEST_F(Hooks, DoesNotReportAnUndefinedGradient) {
  struct NoGradientForWeight : torch::autograd::Function<NoGradientForWeight> {
    static torch::Tensor forward(torch::autograd::AutogradContext*, const torch::Tensor& x,
                                 const torch::Tensor& weight) {
      return x + weight;
    }
    static torch::autograd::variable_list backward(torch::autograd::AutogradContext*,
                                                   torch::autograd::variable_list gradients) {
      return {gradients[0], torch::Tensor()};
    }
  };
  NoGradientForWeight::apply(net.layers[0]->weight, net.layers[1]->weight).sum().backward();
  EXPECT_EQ(take(), (Slots{0}));
}

TEST_F(Hooks, IsSilentForGradientsThatAreNotAccumulated) {
  const auto gradients = torch::autograd::grad({net.through({0, 1, 2})}, net.parameters());
  EXPECT_EQ(gradients.size(), 6U);
  EXPECT_TRUE(take().empty());
}

TEST_F(Hooks, ExceptionsComeOutOfBackward) {
  hooks.reset();
  hooks = std::make_unique<GradientHooks>(binding, [](int slot) {
    if (slot < 2) throw IoError("rank 3 is gone", 3);
  });
  try {
    net.through({0, 1, 2}).backward();
    FAIL() << "expected IoError";
  } catch (const IoError& error) {
    EXPECT_EQ(error.peer(), 3);
  }
}

TEST_F(Hooks, AreGoneAfterDestruction) {
  auto loss = net.through({0, 1, 2});
  hooks.reset();
  loss.backward();
  net.through({0, 1, 2}).backward();
  EXPECT_TRUE(take().empty());
}

// Whatever user code did to `.grad`, the arena holds the gradient when it is reported.
class GradientAtReport : public testing::TestWithParam<const char*> {};

TEST_P(GradientAtReport, IsInTheArena) {
  const std::string how = GetParam();
  torch::manual_seed(1);
  EveryLayer net;
  torch::manual_seed(1);
  EveryLayer reference;
  // An LSTM computes other bits where its backward is to be differentiated.
  const auto backward = [&](const torch::Tensor& loss) {
    loss.backward({}, /*retain_graph=*/{}, /*create_graph=*/how == "create_graph");
  };
  backward(test::loss_at(reference, 0));

  Binding binding(*net, allocate_on_heap);
  int reports = 0;
  const GradientHooks hooks(binding, [&](int slot) {
    ++reports;
    const auto index = static_cast<std::size_t>(slot);
    const Span got = binding.arena().gradients().at(binding.arena().slots()[index].range);
    EXPECT_TRUE(torch::equal(torch::from_blob(got.data, {static_cast<std::int64_t>(got.count)}),
                             reference->parameters()[index].grad().flatten()))
        << binding.names_of_slot(slot)[0];
    EXPECT_EQ(binding.parameter(slot).grad().data_ptr(), got.data);
  });
  if (how == "cleared") net->zero_grad(true);
  if (how == "replaced")
    for (auto& parameter : net->parameters())
      parameter.mutable_grad() = torch::zeros_like(parameter);
  backward(test::loss_at(net, 0));
  EXPECT_EQ(reports, binding.slots());
}

INSTANTIATE_TEST_SUITE_P(UserCode, GradientAtReport,
                         testing::Values("untouched", "cleared", "replaced", "create_graph"),
                         [](const auto& info) { return std::string(info.param); });

TEST(GradientHooks, SparseGradientsAreAddedDensely) {
  torch::nn::Embedding net(torch::nn::EmbeddingOptions(4, 2).sparse(true));
  Binding binding(*net, allocate_on_heap);
  int reports = 0;
  const GradientHooks hooks(binding, [&](int) { ++reports; });
  for (const bool cleared : {false, true}) {
    binding.gradient_plane().zero_();
    if (cleared) net->zero_grad(true);
    net(torch::tensor({1, 1, 3})).sum().backward();
    const auto expected = torch::tensor({0, 0, 2, 2, 0, 0, 1, 1}, torch::kFloat32);
    EXPECT_TRUE(torch::equal(binding.gradient_plane().slice(0, 0, 8), expected));
  }
  EXPECT_EQ(reports, 2);
}

}  // namespace
}  // namespace skein
