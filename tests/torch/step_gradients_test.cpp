// Who touches gradients between backward() and step() is seen; what autograd does is not.
#include "strategy/step_gradients.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include "skein/error.h"
#include "test_net.h"
#include "torch/gradient_hooks.h"
#include "torch/read_hook.h"

namespace skein::step_gradients_test {
namespace {

// Three layers of a weight and a bias each: slots 0 … 5. Every slot is a bucket of its own, the
// last slot bucket 0.
struct Layers : torch::nn::Module {
  Layers() {
    for (const char* name : {"a", "b", "c"})
      layers.push_back(register_module(name, torch::nn::Linear(3, 3)));
  }
  torch::Tensor loss(std::vector<std::size_t> order = {0, 1, 2}) {
    torch::Tensor x = torch::ones({2, 3});
    for (const std::size_t i : order) x = torch::tanh(layers[i](x));
    return x.square().sum();
  }
  std::vector<torch::nn::Linear> layers;
};

class Watched final : public Program {
 public:
  Watched(const Binding& binding, std::function<void(int)> on_touch)
      : binding_(binding), touches_(binding, std::move(on_touch), ReadHook::Watch::gradients) {}
  bool sees_touches() const override { return true; }
  void watch_gradients(bool on) override { on ? touches_.activate() : touches_.deactivate(); }
  bool gradient_is_in_place(int slot) const override { return binding_.gradient_is_in_place(slot); }

 private:
  const Binding& binding_;
  ReadHook touches_;
};

class TouchedGradients : public testing::Test {
 protected:
  void begin(int passes = 1, bool sends = true, bool weight_known = true) {
    left.clear();
    gradients.begin(binding.arena(), plan, passes, sends, weight_known);
  }

  // A step in which nobody touches anything: from then on buckets leave in backward.
  void plain_step() {
    begin();
    net.loss().backward();
    EXPECT_FALSE(gradients.end().has_value());
  }

  Layers net;
  Binding binding{net, allocate_on_heap};
  BucketPlan plan{binding.arena(), Fusion::none()};
  Watched program{binding, [this](int slot) { gradients.on_touch(slot); }};
  StepGradients gradients{program};
  std::vector<int> left;
  GradientHooks hooks{binding, [this](int slot) {
                        if (const int bucket = gradients.add(slot); bucket >= 0)
                          left.push_back(bucket);
                      }};
};

TEST_F(TouchedGradients, NothingLeavesInTheFirstStepAndAllInThoseAfterIt) {
  plain_step();
  EXPECT_TRUE(left.empty());
  plain_step();
  EXPECT_EQ(left, (std::vector<int>{0, 1, 2, 3, 4, 5}));
}

TEST_F(TouchedGradients, AStepWithoutGradientsTeachesNothing) {
  begin();
  EXPECT_FALSE(gradients.end().has_value());
  plain_step();
  EXPECT_TRUE(left.empty());
}

// What users do to gradients.
void clip_as_torch_does(Layers& net) { torch::nn::utils::clip_grad_norm_(net.parameters(), 0.01); }
void halve(Layers& net) {
  for (auto& each : net.parameters()) each.mutable_grad().mul_(0.5);
}
void halve_unversioned(Layers& net) {
  for (auto& each : net.parameters()) each.grad().data().mul_(0.5);
}
void look(Layers& net) { (void)net.layers[1]->bias.grad().isnan().any().item<bool>(); }
void look_at_a_row(Layers& net) { (void)net.layers[1]->weight.grad()[2].norm(); }
void look_without_gradients(Layers& net) {
  const torch::InferenceMode guard;
  (void)net.layers[0]->weight.grad().norm();
}
void clear(Layers& net) { net.zero_grad(/*set_to_none=*/false); }
void forget(Layers& net) { net.zero_grad(/*set_to_none=*/true); }
void replace(Layers& net) { net.layers[2]->bias.mutable_grad() = torch::ones({3}); }

class EveryTouch : public TouchedGradients, public testing::WithParamInterface<void (*)(Layers&)> {
 protected:
  void touch() { GetParam()(net); }
};

TEST_P(EveryTouch, InTheFirstStepKeepsAllBucketsHereFromThenOn) {
  begin();
  net.loss().backward();
  touch();
  const auto seen = gradients.end();
  ASSERT_TRUE(seen.has_value());
  EXPECT_FALSE(seen->left);
  binding.rebind_gradients();
  for (int step = 0; step < 2; ++step) {
    begin();
    net.loss().backward();
    touch();
    EXPECT_TRUE(left.empty());
    EXPECT_FALSE(gradients.end().has_value()) << "said twice";
    binding.rebind_gradients();
  }
}

TEST_P(EveryTouch, OfWhatHasLeftIsTooLate) {
  plain_step();
  begin();
  net.loss().backward();
  EXPECT_EQ(left.size(), 6U);
  touch();
  const auto seen = gradients.end();
  ASSERT_TRUE(seen.has_value());
  EXPECT_TRUE(seen->left);
}

// The last layer has no gradient in this step, so its buckets, and with them all others, wait.
TEST_P(EveryTouch, OfWhatHasNotLeftIsInTime) {
  plain_step();
  begin();
  net.loss({0, 1}).backward();
  EXPECT_FALSE(left.empty()) << "reported, though they cannot leave";
  if (GetParam() == &replace) return;  // touches the last layer alone, which has no gradient
  touch();
  const auto seen = gradients.end();
  ASSERT_TRUE(seen.has_value());
  EXPECT_FALSE(seen->left);
  binding.rebind_gradients();
  begin();
  net.loss().backward();
  EXPECT_TRUE(left.empty());
}

TEST_P(EveryTouch, BetweenPassesIsTheUsersOwn) {
  plain_step();
  begin(2);
  net.loss().backward();
  touch();
  net.loss().backward();
  EXPECT_FALSE(gradients.end().has_value());
}

TEST_P(EveryTouch, WhereNothingIsSentInBackwardIsTheUsersOwn) {
  begin(1, /*sends=*/false);
  net.loss().backward();
  touch();
  EXPECT_FALSE(gradients.end().has_value());
}

TEST_P(EveryTouch, BetweenStepsIsTheUsersOwn) {
  plain_step();
  touch();
  binding.rebind_gradients();
  plain_step();
  EXPECT_EQ(left.size(), 6U);
}

INSTANTIATE_TEST_SUITE_P(Users, EveryTouch,
                         testing::Values(&clip_as_torch_does, &halve, &halve_unversioned, &look,
                                         &look_at_a_row, &look_without_gradients, &clear, &forget,
                                         &replace));

TEST_F(TouchedGradients, BackwardItselfTouchesNothing) {
  plain_step();
  begin(3);
  for (int pass = 0; pass < 3; ++pass) net.loss().backward();
  EXPECT_FALSE(gradients.end().has_value());
  begin();
  net.zero_grad();
  net.loss().backward({}, /*retain_graph=*/true, /*create_graph=*/true);
  EXPECT_FALSE(gradients.end().has_value());
  begin();
  net.loss({0, 1, 2, 1, 0}).backward();  // layers that are used twice
  EXPECT_FALSE(gradients.end().has_value());
}

// The gradient of a gradient's norm, as penalties need it.
TEST_F(TouchedGradients, GradientsThatAutogradReturnsAreNoneOfTheSteps) {
  plain_step();
  begin();
  const auto loss = net.loss();
  const auto slopes =
      torch::autograd::grad({loss}, net.parameters(), {}, /*retain_graph=*/true, true);
  torch::Tensor penalty = loss;
  for (const auto& each : slopes) penalty = penalty + each.square().sum();
  penalty.backward();
  EXPECT_FALSE(gradients.end().has_value());
}

TEST_F(TouchedGradients, AHookOnAnIncomingGradientIsTheUsersOwn) {
  net.layers[1]->weight.register_hook([](const torch::Tensor& grad) { return grad * 2; });
  plain_step();
  plain_step();
}

TEST_F(TouchedGradients, AnUnannouncedPassIsAnError) {
  plain_step();
  begin();
  net.loss().backward();
  EXPECT_THROW(net.loss().backward(), ConfigError);
}

}  // namespace
}  // namespace skein::step_gradients_test
