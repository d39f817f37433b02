#include "torch/read_hook.h"

#include <ATen/record_function.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <atomic>
#include <latch>
#include <set>
#include <thread>

#include "skein/error.h"
#include "test_net.h"
#include "torch/torch_optimizer.h"

namespace skein {
namespace {

using test::contains;
using test::EveryLayer;
using test::message_of;
using test::Tied;
using Slots = std::set<int>;

// Slots of an EveryLayer in order of registration.
enum : int {
  kConvWeight,
  kConvBias,
  kNormWeight,
  kNormBias,
  kWords,
  kLstm,
  kHeadWeight = 9,
  kHeadBias
};

class Reads : public testing::Test {
 protected:
  void SetUp() override { hook.activate(); }

  // The slots reported since the last call.
  Slots take() { return std::exchange(reads, {}); }

  EveryLayer net;
  Binding binding{*net, allocate_on_heap};
  Slots reads;
  ReadHook hook{binding, [this](int slot) { reads.insert(slot); }};
};

TEST_F(Reads, SeesEveryLayerOfForward) {
  test::loss_at(net, 0);
  EXPECT_EQ(take(), (Slots{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10}));
}

TEST_F(Reads, SeesALayerBeforeTheNextOneRuns) {
  net->conv(torch::zeros({1, 1, 8, 8}));
  EXPECT_EQ(take(), (Slots{kConvWeight, kConvBias}));
  net->lstm(torch::zeros({1, 2, 6}));
  EXPECT_EQ(take(), (Slots{kLstm, kLstm + 1, kLstm + 2, kLstm + 3}));
  net->words(torch::zeros({1}, torch::kInt64));
  EXPECT_EQ(take(), (Slots{kWords}));
}

TEST_F(Reads, SeesFunctionalCodeViewsAndLists) {
  torch::nn::functional::linear(torch::ones({1, 9}), net->head->weight);
  EXPECT_EQ(take(), (Slots{kHeadWeight}));
  const auto row = net->head->weight.select(0, 1).slice(0, 2, 4);
  take();
  row.sum();
  EXPECT_EQ(take(), (Slots{kHeadWeight}));
  torch::cat({torch::zeros({4}), net->conv->bias, net->norm->bias});
  EXPECT_EQ(take(), (Slots{kConvBias, kNormBias}));
  net->conv->bias.index({torch::tensor({1, 2})});
  EXPECT_EQ(take(), (Slots{kConvBias}));
}

TEST_F(Reads, SeesOptionalTensors) {
  torch::layer_norm(torch::ones({2, 4}), {4}, net->norm->weight, {});
  EXPECT_EQ(take(), (Slots{kNormWeight}));
  // A list of optional tensors, with a hole: x[:, bias]
  const auto index = net->norm->bias.detach().to(torch::kInt64);
  take();
  torch::zeros({3, 4}).index({torch::indexing::Slice(), index});
  EXPECT_TRUE(take().empty());
}

TEST_F(Reads, SeesEverySlotOfTheFlatPlane) {
  binding.parameter_plane().sum();
  EXPECT_EQ(take().size(), 11U);
}

TEST_F(Reads, SeesExactlyTheSlotsAViewTouches) {
  const auto plane = binding.parameter_plane();
  const auto& slots = binding.arena().slots();
  const auto bias = static_cast<std::int64_t>(slots[kConvBias].range.offset);
  const auto norm = static_cast<std::int64_t>(slots[kNormWeight].range.offset);
  const auto touched = [&](std::int64_t begin, std::int64_t end) {
    const auto view = plane.slice(0, begin, end);
    take();
    view.sum();
    return take();
  };
  EXPECT_EQ(touched(bias, bias + 1), (Slots{kConvBias}));
  EXPECT_EQ(touched(bias + 3, bias + 4), (Slots{kConvBias}));
  EXPECT_TRUE(touched(bias + 4, norm).empty());  // the gap between them
  EXPECT_EQ(touched(bias + 3, norm + 1), (Slots{kConvBias, kNormWeight}));
  EXPECT_TRUE(touched(bias + 3, bias + 3).empty());
}

TEST_F(Reads, IgnoresEverythingElse) {
  torch::ones({3}).add(torch::ones({3})).sum();
  net->norm->running_mean.sum();
  EXPECT_TRUE(take().empty());
}

TEST_F(Reads, SeesGradients) {
  net->conv->weight.grad().sum();
  EXPECT_EQ(take(), (Slots{kConvWeight}));
  net->head->zero_grad(/*set_to_none=*/false);
  EXPECT_EQ(take(), (Slots{kHeadWeight, kHeadBias}));
}

TEST_F(Reads, SeesBackward) {
  const auto x = torch::ones({1, 9}, torch::requires_grad());
  net->head->weight.set_requires_grad(false);
  auto loss = net->head(x).sum();
  take();
  loss.backward();
  // The gradient of a linear layer's input needs its weight, and that of its bias is added up.
  EXPECT_EQ(take(), (Slots{kHeadWeight, kHeadBias}));
}

TEST_F(Reads, SeesNoGradAndInferenceMode) {
  {
    torch::NoGradGuard no_grad;
    net->conv->bias.norm();
  }
  EXPECT_EQ(take(), (Slots{kConvBias}));
  {
    c10::InferenceMode inference;
    net->norm->bias.norm();
  }
  EXPECT_EQ(take(), (Slots{kNormBias}));
}

TEST_F(Reads, SeesOtherThreads) {
  std::thread([&] { net->head->bias.norm(); }).join();
  EXPECT_EQ(take(), (Slots{kHeadBias}));
}

TEST_F(Reads, SeesNothingWhileInactive) {
  hook.deactivate();
  EXPECT_FALSE(at::hasCallbacks());
  test::loss_at(net, 0);
  EXPECT_TRUE(take().empty());
  hook.activate();
  hook.activate();  // twice is once
  net->head->bias.norm();
  EXPECT_EQ(take(), (Slots{kHeadBias}));
  hook.deactivate();
  hook.deactivate();
  EXPECT_FALSE(at::hasCallbacks());
}

TEST_F(Reads, AnOptimizersUpdateIsNoRead) {
  TorchOptimizer optimizer(binding.arena().size(), [](auto parameters) {
    return std::make_unique<torch::optim::Adam>(parameters);
  });
  optimizer.update({0, binding.arena().size()}, binding.arena().parameters(),
                   binding.arena().gradients(), {.learning_rate = 0.1});
  EXPECT_TRUE(take().empty());
  net->head->bias.norm();
  EXPECT_EQ(take(), (Slots{kHeadBias}));
}

TEST(ReadHook, ReportsATiedWeightUnderItsOneSlot) {
  Tied net;
  const Binding binding(*net, allocate_on_heap);
  Slots reads;
  ReadHook hook(binding, [&](int slot) { reads.insert(slot); });
  hook.activate();
  net->decoder.sum();
  EXPECT_EQ(reads, Slots{0});
}

TEST(ReadHook, RunsBeforeTheOperatorReads) {
  torch::nn::Linear net(2, 1);
  const Binding binding(*net, allocate_on_heap);
  // Writes to the arena as an arriving bucket would, with torch, which must not recurse.
  ReadHook hook(binding, [&](int slot) {
    const Range range = binding.arena().slots()[static_cast<std::size_t>(slot)].range;
    torch::NoGradGuard no_grad;
    torch::Tensor(binding.parameter_plane())
        .narrow(0, static_cast<std::int64_t>(range.offset), static_cast<std::int64_t>(range.count))
        .fill_(3);
  });
  hook.activate();
  EXPECT_EQ(net(torch::ones({1, 2})).item<float>(), 9);
}

TEST(ReadHook, CanBeDeactivatedFromWithin) {
  torch::nn::Linear net(2, 2);
  const Binding binding(*net, allocate_on_heap);
  std::vector<int> reads;
  ReadHook hook(binding, [&](int slot) {
    reads.push_back(slot);
    hook.deactivate();
  });
  hook.activate();
  net(torch::ones({1, 2}));  // reads both slots in one operator
  EXPECT_EQ(reads.size(), 1U);
  EXPECT_FALSE(at::hasCallbacks());
}

TEST(ReadHook, SeveralModulesEachSeeTheirOwn) {
  torch::nn::Linear first(2, 2), second(2, 2);
  const Binding first_binding(*first, allocate_on_heap), second_binding(*second, allocate_on_heap);
  std::string reads;
  ReadHook first_hook(first_binding, [&](int) { reads = "first"; });
  auto second_hook = std::make_unique<ReadHook>(second_binding, [&](int) { reads = "second"; });
  const auto reads_of = [&](torch::nn::Linear& net) {
    reads = "none";
    net->bias.norm();
    return reads;
  };
  first_hook.activate();
  second_hook->activate();
  EXPECT_EQ(reads_of(first), "first");
  EXPECT_EQ(reads_of(second), "second");
  second_hook.reset();
  EXPECT_EQ(reads_of(second), "none");
  EXPECT_EQ(reads_of(first), "first");
}

TEST(ReadHook, KeepsTheFirstErrorAndReportsNothingUntilItIsTaken) {
  torch::nn::Linear net(2, 2);
  const Binding binding(*net, allocate_on_heap);
  int calls = 0;
  ReadHook hook(binding, [&](int) { throw IoError("deadline " + std::to_string(++calls)); });
  EXPECT_FALSE(hook.take_error());
  hook.activate();
  net(torch::ones({1, 2}));
  net->bias.norm();
  EXPECT_EQ(calls, 1);
  const std::exception_ptr error = hook.take_error();
  ASSERT_TRUE(error);
  EXPECT_EQ(message_of<IoError>([&] { std::rethrow_exception(error); }), "deadline 1");
  EXPECT_FALSE(hook.take_error());
  net->bias.norm();
  EXPECT_EQ(message_of<IoError>([&] { std::rethrow_exception(hook.take_error()); }), "deadline 2");
}

TEST(ReadHook, DestructionWaitsForACallInFlight) {
  torch::nn::Linear net(2, 2);
  const Binding binding(*net, allocate_on_heap);
  std::latch started(1);
  std::atomic<bool> finished = false;
  auto hook = std::make_unique<ReadHook>(binding, [&](int) {
    started.count_down();
    std::this_thread::sleep_for(std::chrono::milliseconds(30));
    finished = true;
  });
  hook->activate();
  std::thread reader([&] { net->bias.norm(); });
  started.wait();
  hook.reset();
  EXPECT_TRUE(finished);
  reader.join();
}

}  // namespace
}  // namespace skein
