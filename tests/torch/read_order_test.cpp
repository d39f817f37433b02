#include "torch/read_order.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include "test_net.h"

namespace skein {
namespace {

// Uses what is registered in the order c, a; b is not used.
struct OtherOrderImpl : torch::nn::Module {
  torch::Tensor forward(const torch::Tensor& x) { return a(torch::relu(c(x))); }

  torch::nn::Linear a = register_module("a", torch::nn::Linear(4, 2));
  torch::nn::Linear b = register_module("b", torch::nn::Linear(4, 4));
  torch::nn::Linear c = register_module("c", torch::nn::Linear(3, 4));
};
TORCH_MODULE(OtherOrder);

using Order = std::vector<int>;
const Order kRegistered{0, 1, 2, 3, 4, 5}, kUsed{2, 3, 4, 5, 0, 1};

TEST(ReadOrder, IsThatOfFirstReadsAfterWhatIsNotRead) {
  OtherOrder net;
  const Binding binding(*net, allocate_on_heap);
  ReadOrder order(binding);
  net(torch::ones({2, 3}));
  net(torch::ones({2, 3})).sum().backward();
  EXPECT_EQ(order.slots(), kUsed);
}

TEST(ReadOrder, LeavesOutWhatIsNoForward) {
  OtherOrder net;
  const Binding binding(*net, allocate_on_heap);
  ReadOrder order(binding);
  net->zero_grad();
  {
    const torch::NoGradGuard no_grad;
    for (torch::Tensor& each : net->parameters()) each.mul_(2);
  }
  EXPECT_EQ(order.slots(), kRegistered);
}

TEST(ReadOrder, EndsWhenBackwardBegins) {
  OtherOrder net;
  const Binding binding(*net, allocate_on_heap);
  ReadOrder order(binding);
  net(torch::ones({2, 3}));
  order.stop();
  net->b(torch::ones({2, 4}));
  EXPECT_EQ(order.slots(), kUsed);
}

TEST(BindingReorder, MovesValuesAndGradientsAndKeepsNames) {
  OtherOrder net;
  Binding binding(*net, allocate_on_heap);
  net(torch::ones({2, 3})).sum().backward();
  std::vector<torch::Tensor> values, gradients;
  for (const torch::Tensor& each : net->parameters()) {
    values.push_back(each.detach().clone());
    gradients.push_back(each.grad().clone());
  }
  const torch::Tensor kept = net->c->weight.detach();
  binding.reorder(kUsed);

  const char* names[] = {"b.weight", "b.bias", "c.weight", "c.bias", "a.weight", "a.bias"};
  for (int i = 0; i < 6; ++i) {
    const Slot& slot = binding.arena().slots()[static_cast<std::size_t>(i)];
    const torch::Tensor& parameter = binding.parameter(i);
    EXPECT_EQ(slot.name, names[i]);
    EXPECT_EQ(parameter.data_ptr<float>(), binding.arena().parameters().at(slot.range).data);
    EXPECT_EQ(parameter.grad().data_ptr<float>(), binding.arena().gradients().at(slot.range).data);
  }
  const auto now = net->parameters();
  for (std::size_t i = 0; i < now.size(); ++i) {
    EXPECT_TRUE(torch::equal(now[i], values[i])) << i;
    EXPECT_TRUE(torch::equal(now[i].grad(), gradients[i])) << i;
  }
  EXPECT_TRUE(torch::equal(kept, net->c->weight)) << "a view that the user kept";
  net(torch::ones({2, 3})).sum().backward();
  EXPECT_TRUE(torch::allclose(net->c->weight.grad(), 2 * gradients[4]));
}

TEST(BindingReorderDeathTest, TakesEachSlotOnce) {
  OtherOrder net;
  Binding binding(*net, allocate_on_heap);
  EXPECT_DEATH(binding.reorder({0, 0, 1, 2, 3, 4}), "slot 0 comes twice");
}

}  // namespace
}  // namespace skein
