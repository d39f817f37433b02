// Flat updates equal torch's own: through the adapter bit for bit, built in within rounding.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <cmath>

#include "core/rng.h"
#include "optimize/adamw.h"
#include "optimize/sgd.h"
#include "skein/error.h"
#include "test_net.h"
#include "torch/binding.h"
#include "torch/torch_optimizer.h"

namespace skein {
namespace {

using namespace torch::optim;
using test::contains;
using test::EveryLayer;
using test::message_of;
using test::Names;

template <typename Torch>
TorchOptimizer::Factory factory(auto options) {
  return [options](std::vector<torch::Tensor> parameters) {
    return std::make_unique<Torch>(std::move(parameters), options);
  };
}

struct Case {
  std::string name;
  TorchOptimizer::Factory make;
};

std::vector<Case> cases() {
  return {
      {"sgd", factory<SGD>(SGDOptions(0.1))},
      {"sgd_decay", factory<SGD>(SGDOptions(0.1).weight_decay(0.01))},
      {"sgd_momentum", factory<SGD>(SGDOptions(0.1).momentum(0.9).weight_decay(0.01))},
      {"sgd_nesterov", factory<SGD>(SGDOptions(0.1).momentum(0.9).nesterov(true))},
      {"sgd_dampened", factory<SGD>(SGDOptions(0.1).momentum(0.9).dampening(0.5))},
      {"adam", factory<Adam>(AdamOptions(0.01).weight_decay(0.01))},
      {"adam_amsgrad", factory<Adam>(AdamOptions(0.01).amsgrad(true))},
      {"adamw", factory<AdamW>(AdamWOptions(0.01).weight_decay(0.1))},
      {"rmsprop", factory<RMSprop>(RMSpropOptions(0.01).momentum(0.5).centered(true))},
      {"adagrad",
       factory<Adagrad>(AdagradOptions(0.05).initial_accumulator_value(0.1).lr_decay(0.1))},
  };
}

double learning_rate_at(std::int64_t step) { return 0.02 / static_cast<double>(step); }

// A net, and after each step of ordinary training what its parameters are.
struct Reference {
  explicit Reference(const TorchOptimizer::Factory& make) : optimizer(make(net->parameters())) {}
  void step(std::int64_t step) {
    optimizer->zero_grad();
    test::loss_at(net, step).backward();
    optimizer->param_groups()[0].options().set_lr(learning_rate_at(step));
    optimizer->step();
  }
  EveryLayer net;
  std::unique_ptr<torch::optim::Optimizer> optimizer;
};

void expect_same_bits(EveryLayer& a, EveryLayer& b, const std::string& where) {
  for (const auto& entry : a->named_parameters())
    ASSERT_TRUE(torch::equal(entry.value(), b->named_parameters()[entry.key()]))
        << entry.key() << " " << where;
  for (const auto& entry : a->named_buffers())
    ASSERT_TRUE(torch::equal(entry.value(), b->named_buffers()[entry.key()]))
        << entry.key() << " " << where;
}

class Adapter : public testing::TestWithParam<Case> {
 protected:
  void SetUp() override {
    torch::manual_seed(3);
    reference = std::make_unique<Reference>(GetParam().make);
    torch::manual_seed(3);
    net = EveryLayer();
    binding = std::make_unique<Binding>(*net, allocate_on_heap);
    optimizer = std::make_unique<TorchOptimizer>(size(), GetParam().make);
  }
  std::size_t size() const { return binding->arena().size(); }
  UpdateContext context(std::int64_t step) const {
    return {.learning_rate = learning_rate_at(step), .gradient_scale = 1, .step = step};
  }
  void update(Range range, std::int64_t step) {
    optimizer->update(range, binding->arena().parameters(), binding->arena().gradients(),
                      context(step));
  }

  std::unique_ptr<Reference> reference;
  EveryLayer net{nullptr};
  std::unique_ptr<Binding> binding;
  std::unique_ptr<TorchOptimizer> optimizer;
};

TEST_P(Adapter, SteppingTheWholePlaneGivesTheBitsOfOrdinaryTraining) {
  for (std::int64_t step = 1; step <= 8; ++step) {
    reference->step(step);
    test::loss_at(net, step).backward();
    update({0, size()}, step);
    expect_same_bits(reference->net, net, "after step " + std::to_string(step));
  }
  EXPECT_EQ(binding->gradient_plane().abs().sum().item<float>(), 0);
}

// Every step cuts the plane at other places: state must follow the elements, not the ranges.
TEST_P(Adapter, RangesMayChangeEveryStep) {
  Rng rng(7);
  for (std::int64_t step = 1; step <= 8; ++step) {
    reference->step(step);
    test::loss_at(net, step).backward();
    for (std::size_t start = 0, end = 0; start < size(); start = end) {
      end = std::min(size(), start + 1 + rng.below(100));
      update({start, end - start}, step);
    }
    expect_same_bits(reference->net, net, "after step " + std::to_string(step));
  }
}

// Two workers own a half each; then they swap a part, as when buckets are planned anew.
TEST_P(Adapter, ShardsThatMoveKeepTheirState) {
  TorchOptimizer other(size(), GetParam().make);
  std::size_t border = size() / 2;
  optimizer->own({{0, border}});
  other.own({{border, size() - border}});
  for (std::int64_t step = 1; step <= 6; ++step) {
    reference->step(step);
    test::loss_at(net, step).backward();
    update({0, border}, step);
    other.update({border, size() - border}, binding->arena().parameters(),
                 binding->arena().gradients(), context(step));
    expect_same_bits(reference->net, net, "after step " + std::to_string(step));
    if (step != 3) continue;

    const std::size_t moved = border + 48;
    optimizer->own({{0, border}, {border, 48}});  // new state starts at zero: filled from the other
    for (auto& [name, state] : optimizer->state()) {
      const Span from = other.state().at(name);
      std::copy_n(from.host().begin(), 48, state.host().begin() + border);
    }
    other.own({{moved, size() - moved}});
    border = moved;
  }
}

TEST_P(Adapter, StateWrittenThroughTheSpansContinuesExactly) {
  for (std::int64_t step = 1; step <= 6; ++step) {
    reference->step(step);
    test::loss_at(net, step).backward();
    update({0, size()}, step);
    auto resumed = std::make_unique<TorchOptimizer>(size(), GetParam().make);
    const auto from = optimizer->state();
    for (auto& [name, state] : resumed->state())
      std::copy(from.at(name).host().begin(), from.at(name).host().end(), state.host().begin());
    optimizer = std::move(resumed);
  }
  expect_same_bits(reference->net, net, "at the end");
}

INSTANTIATE_TEST_SUITE_P(Torch, Adapter, testing::ValuesIn(cases()),
                         [](const auto& info) { return info.param.name; });

TEST(TorchOptimizer, ScalesGradientsFirstAndZeroesThem) {
  TorchOptimizer optimizer(4, factory<SGD>(SGDOptions(1)));
  std::vector<float> parameters(4, 1), gradients{1, 2, 3, 4};
  optimizer.update({1, 2}, {parameters.data(), 4}, {gradients.data(), 4},
                   {.learning_rate = 0.5, .gradient_scale = 0.25F, .step = 1});
  EXPECT_EQ(parameters, (std::vector<float>{1, 0.75F, 0.625F, 1}));
  EXPECT_EQ(gradients, (std::vector<float>{1, 0, 0, 4}));
}

TEST(TorchOptimizer, NamesItsState) {
  const auto state_of = [](const TorchOptimizer::Factory& make) {
    TorchOptimizer optimizer(4, make);
    optimizer.own({{0, 1}, {2, 2}});
    for (const auto& [name, span] : optimizer.state()) EXPECT_EQ(span.count, 3U) << name;
    Names names;
    for (const auto& [name, span] : optimizer.state()) names.push_back(name);
    return names;
  };
  EXPECT_TRUE(state_of(factory<SGD>(SGDOptions(1))).empty());
  EXPECT_EQ(state_of(factory<SGD>(SGDOptions(1).momentum(0.9))), (Names{"momentum"}));
  EXPECT_EQ(state_of(factory<AdamW>(AdamWOptions(1))), (Names{"exp_avg", "exp_avg_sq"}));
  EXPECT_EQ(state_of(factory<RMSprop>(RMSpropOptions(1))), (Names{"square_avg"}));
  EXPECT_EQ(state_of(factory<Adagrad>(AdagradOptions(1))), (Names{"sum"}));
}

TEST(TorchOptimizer, RefusesWhatIsNotElementwise) {
  const auto error_of = [](const TorchOptimizer::Factory& make) {
    return message_of<ConfigError>([&] { const TorchOptimizer optimizer(4, make); });
  };
  EXPECT_TRUE(contains(error_of(factory<LBFGS>(LBFGSOptions(1))), {"LBFGS"}));
  EXPECT_TRUE(contains(error_of([](auto) { return nullptr; }), {"returned nothing"}));
  EXPECT_TRUE(contains(
      error_of([](auto) { return std::make_unique<SGD>(std::vector{torch::zeros({1})}, 0.1); }),
      {"one parameter group"}));
  EXPECT_TRUE(contains(error_of(factory<Adam>(AdamOptions(0.1).eps(0))), {"eps"}));

  struct Own : torch::optim::Optimizer {
    explicit Own(std::vector<torch::Tensor> parameters)
        : Optimizer(std::move(parameters), std::make_unique<SGDOptions>(0.1)) {}
    torch::Tensor step(LossClosure) override {
      const torch::NoGradGuard no_grad;
      for (auto& group : param_groups())
        for (auto& each : group.params()) each -= 0.1 * each.grad() / (each.grad().norm() + 1);
      return {};
    }
  };
  EXPECT_TRUE(contains(error_of([](auto parameters) { return std::make_unique<Own>(parameters); }),
                       {"not elementwise"}));
}

// Steps both over the same gradients, which do not depend on the parameters, so that a difference
// in rounding is not amplified by training. The largest difference, in units of the last place of 1
// or of the parameter if that is larger.
double largest_difference(skein::Optimizer& fused, const TorchOptimizer::Factory& make) {
  constexpr std::size_t kSize = 1003;
  Rng rng(11);
  std::vector<float> parameters(kSize), gradients(kSize);
  for (float& value : parameters) value = static_cast<float>(rng.normal());
  const auto expected = torch::tensor(parameters);
  const auto optimizer = make({expected});
  double largest = 0;
  for (std::int64_t step = 1; step <= 50; ++step) {
    for (float& value : gradients) value = static_cast<float>(rng.normal());
    torch::Tensor(expected).mutable_grad() = torch::tensor(gradients);
    optimizer->param_groups()[0].options().set_lr(learning_rate_at(step));
    optimizer->step();
    fused.update({0, kSize}, {parameters.data(), kSize}, {gradients.data(), kSize},
                 {.learning_rate = learning_rate_at(step), .step = step});
    for (std::size_t i = 0; i < kSize; ++i) {
      const double want = expected.data_ptr<float>()[i], got = parameters[i];
      const double unit = std::max(std::abs(want), 1.0) * std::numeric_limits<float>::epsilon();
      largest = std::max(largest, std::abs(want - got) / unit);
    }
  }
  return largest;
}

// Torch may fuse a multiplication and an addition into one rounding where Skein makes two: half a
// unit a step, in either direction. After 50 steps it is 1.2 units at most on a machine with AVX2.
constexpr double kUnits = 2;

TEST(Fused, SgdEqualsTorch) {
  for (const double decay : {0.0, 0.05}) {
    for (const double momentum : {0.0, 0.9}) {
      for (const bool nesterov : {false, true}) {
        if (nesterov && momentum == 0) continue;
        Sgd fused(1003, {.momentum = momentum, .weight_decay = decay, .nesterov = nesterov});
        const auto options =
            SGDOptions(1).momentum(momentum).weight_decay(decay).nesterov(nesterov);
        const double difference = largest_difference(fused, factory<SGD>(options));
        EXPECT_LE(difference, kUnits) << decay << " " << momentum << " " << nesterov;
      }
    }
  }
}

TEST(Fused, AdamwEqualsTorch) {
  for (const double decay : {0.0, 0.1}) {
    Adamw fused(1003, {.beta1 = 0.9, .beta2 = 0.99, .epsilon = 1e-8, .weight_decay = decay});
    const auto options = AdamWOptions(1).betas({0.9, 0.99}).eps(1e-8).weight_decay(decay);
    const double difference = largest_difference(fused, factory<AdamW>(options));
    EXPECT_LE(difference, kUnits) << decay;
  }
}

}  // namespace
}  // namespace skein
