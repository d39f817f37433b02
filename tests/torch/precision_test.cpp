// bfloat16 where torch's autocast chooses it, on the host.
#include "train/precision.h"

#include <gtest/gtest.h>

#include <cmath>

#include "models/model.h"
#include "skein/error.h"

namespace skein::precision_test {
namespace {

torch::ScalarType type_of_a_product() {
  return torch::matmul(torch::ones({2, 2}), torch::ones({2, 2})).scalar_type();
}

TEST(Autocast, ComputesProductsInItsPrecisionForAsLongAsItLives) {
  EXPECT_EQ(type_of_a_product(), torch::kFloat32);
  {
    const Autocast half(torch::kCPU, Precision::bf16);
    EXPECT_EQ(type_of_a_product(), torch::kBFloat16);
    {
      const Autocast whole(torch::kCPU, Precision::f32);
      EXPECT_EQ(type_of_a_product(), torch::kFloat32);
    }
    EXPECT_EQ(type_of_a_product(), torch::kBFloat16);
  }
  EXPECT_EQ(type_of_a_product(), torch::kFloat32);
}

// Torch keeps copies of parameters while it lives: they must not be those of an earlier step.
TEST(Autocast, SeesParametersThatChangeBetweenTwoOfThem) {
  torch::nn::Linear layer(4, 1);
  const torch::Tensor input = torch::ones({1, 4});
  const auto output = [&] {
    const Autocast half(torch::kCPU, Precision::bf16);
    return layer->forward(input).to(torch::kFloat32).item<double>();
  };
  const auto set = [&](double value) {
    const torch::NoGradGuard no_grad;
    layer->weight.fill_(value);
    layer->bias.zero_();
  };
  set(1);
  EXPECT_EQ(output(), 4);
  set(2);
  EXPECT_EQ(output(), 8);
}

TEST(Autocast, EveryImageModelHasFloat32ParametersGradientsAndLoss) {
  for (const char* name : {"mlp", "cnn", "resnet18"}) {
    torch::manual_seed(1);
    const auto model = make_model(name, {3, 16, 16}, 10, {});
    const torch::Tensor data = torch::randn({4, 3, 16, 16});
    const torch::Tensor target = torch::randint(10, {4}, torch::kInt64);
    const auto loss_in = [&](Precision precision) {
      const Autocast scope(torch::kCPU, precision);
      return loss_of(model->forward(data), target);
    };
    const torch::Tensor exact = loss_in(Precision::f32), rounded = loss_in(Precision::bf16);
    EXPECT_EQ(rounded.scalar_type(), torch::kFloat32) << name;
    EXPECT_NE(rounded.item<double>(), exact.item<double>()) << name << ": nothing was rounded";
    EXPECT_NEAR(rounded.item<double>(), exact.item<double>(), 0.1) << name;
    rounded.backward();
    for (const auto& each : model->parameters()) {
      EXPECT_EQ(each.scalar_type(), torch::kFloat32) << name;
      EXPECT_EQ(each.grad().scalar_type(), torch::kFloat32) << name;
    }
  }
}

TEST(Precision, IsSpelledOneWay) {
  EXPECT_EQ(parse_precision("f32"), Precision::f32);
  EXPECT_EQ(parse_precision("bf16"), Precision::bf16);
  EXPECT_THROW(parse_precision("fp16"), ConfigError);
}

}  // namespace
}  // namespace skein::precision_test
