// Small modules that the tests of the torch layer share.
#pragma once

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <string>
#include <vector>

namespace skein::test {

// Convolution, batch norm, embedding, LSTM and linear layers in one model.
struct EveryLayerImpl : torch::nn::Module {
  EveryLayerImpl()
      : conv(register_module("conv", torch::nn::Conv2d(1, 4, 3))),
        norm(register_module("norm", torch::nn::BatchNorm2d(4))),
        words(register_module("words", torch::nn::Embedding(10, 6))),
        lstm(register_module("lstm",
                             torch::nn::LSTM(torch::nn::LSTMOptions(6, 5).batch_first(true)))),
        head(register_module("head", torch::nn::Linear(9, 3))) {}

  torch::Tensor forward(const torch::Tensor& image, const torch::Tensor& text) {
    const auto seen = torch::relu(norm(conv(image))).mean({2, 3});
    const auto read = std::get<0>(lstm(words(text))).select(1, -1);
    return head(torch::cat({seen, read}, 1));
  }

  torch::nn::Conv2d conv;
  torch::nn::BatchNorm2d norm;
  torch::nn::Embedding words;
  torch::nn::LSTM lstm;
  torch::nn::Linear head;
};
TORCH_MODULE(EveryLayer);

// The loss of an EveryLayer on the `step`-th of a fixed sequence of batches.
inline torch::Tensor loss_at(EveryLayer& net, std::int64_t step) {
  const auto image = torch::sin(torch::arange(4 * 64, torch::kFloat32) * 0.37 + double(step));
  const auto text = torch::remainder(torch::arange(4 * 5) * 7 + step, 10).reshape({4, 5});
  const auto target = torch::remainder(torch::arange(4) + step, 3);
  return torch::nn::functional::cross_entropy(net(image.reshape({4, 1, 8, 8}), text), target);
}

// The same at every call.
inline EveryLayer fresh_net() {
  torch::manual_seed(3);
  return EveryLayer();
}

inline void expect_same_bits(EveryLayer& want, EveryLayer& net, std::int64_t step) {
  for (const auto& each : want->named_parameters())
    ASSERT_TRUE(torch::equal(each.value(), net->named_parameters()[each.key()]))
        << each.key() << " after step " << step;
}

// Encodes and decodes with one matrix, registered under two names.
struct TiedImpl : torch::nn::Module {
  TiedImpl()
      : encoder(register_parameter("encoder", torch::randn({4, 4}))),
        decoder(register_parameter("decoder", encoder)),
        bias(register_parameter("bias", torch::zeros({4}))) {}
  torch::Tensor forward(const torch::Tensor& x) {
    return torch::relu(x.matmul(encoder) + bias).matmul(decoder.t());
  }

  torch::Tensor encoder, decoder, bias;
};
TORCH_MODULE(Tied);

using Names = std::vector<std::string>;

inline Names names_of(const auto& named_tensors) {
  Names names;
  for (const auto& named : named_tensors) names.push_back(named.name);
  return names;
}

inline testing::AssertionResult contains(const std::string& text, const Names& parts) {
  for (const std::string& part : parts)
    if (text.find(part) == std::string::npos)
      return testing::AssertionFailure() << '"' << text << "\" does not contain \"" << part << '"';
  return testing::AssertionSuccess();
}

// What `action` throws of type Exception, or "" when it does not.
template <typename Exception>
std::string message_of(const auto& action) {
  try {
    action();
  } catch (const Exception& error) {
    return error.what();
  }
  return "";
}

}  // namespace skein::test
