// Modules whose parameters are awkward to synchronise, each with the same shapes outside: a batch
// of kInputs columns in, kClasses out. A weight of kWidth x kWidth fills a bucket of 64 KB.
#pragma once

#include <torch/torch.h>

namespace skein::testing {

inline constexpr std::int64_t kInputs = 32, kWidth = 128, kClasses = 10;

struct PlainImpl : torch::nn::Module {
  torch::Tensor forward(torch::Tensor x) {
    x = torch::relu(second(torch::relu(first(x))));
    return last(torch::relu(third(x)));
  }

  torch::nn::Linear first = register_module("first", torch::nn::Linear(kInputs, kWidth));
  torch::nn::Linear second = register_module("second", torch::nn::Linear(kWidth, kWidth));
  torch::nn::Linear third = register_module("third", torch::nn::Linear(kWidth, kWidth));
  torch::nn::Linear last = register_module("last", torch::nn::Linear(kWidth, kClasses));
};
TORCH_MODULE(Plain);

// Forward uses the layers from the last registered to the first.
struct BackToFrontImpl : torch::nn::Module {
  torch::Tensor forward(torch::Tensor x) {
    x = torch::relu(second(torch::relu(first(x))));
    return last(torch::relu(third(x)));
  }

  torch::nn::Linear last = register_module("last", torch::nn::Linear(kWidth, kClasses));
  torch::nn::Linear third = register_module("third", torch::nn::Linear(kWidth, kWidth));
  torch::nn::Linear second = register_module("second", torch::nn::Linear(kWidth, kWidth));
  torch::nn::Linear first = register_module("first", torch::nn::Linear(kInputs, kWidth));
};
TORCH_MODULE(BackToFront);

// One matrix, registered under two names, encodes and decodes.
struct TiedWeightsImpl : torch::nn::Module {
  torch::Tensor forward(torch::Tensor x) {
    x = torch::relu(torch::mm(torch::relu(first(x)), encoder));
    return last(torch::mm(torch::relu(middle(x)), decoder.t()));
  }

  torch::Tensor encoder = register_parameter("encoder", 0.1 * torch::randn({kWidth, kWidth}));
  torch::nn::Linear first = register_module("first", torch::nn::Linear(kInputs, kWidth));
  torch::nn::Linear middle = register_module("middle", torch::nn::Linear(kWidth, kWidth));
  torch::Tensor decoder = register_parameter("decoder", encoder);
  torch::nn::Linear last = register_module("last", torch::nn::Linear(kWidth, kClasses));
};
TORCH_MODULE(TiedWeights);

// Registered from the last used to the first, with a matrix that is used first and last and a layer
// that is not used at all in between.
struct ScrambledImpl : torch::nn::Module {
  torch::Tensor forward(torch::Tensor x) {
    x = torch::relu(torch::mm(torch::relu(first(x)), encoder));
    return last(torch::mm(torch::relu(middle(x)), decoder.t()));
  }

  torch::nn::Linear last = register_module("last", torch::nn::Linear(kWidth, kClasses));
  torch::Tensor decoder = register_parameter("decoder", 0.1 * torch::randn({kWidth, kWidth}));
  torch::nn::Linear unused = register_module("unused", torch::nn::Linear(kWidth, kWidth));
  torch::nn::Linear middle = register_module("middle", torch::nn::Linear(kWidth, kWidth));
  torch::Tensor encoder = register_parameter("encoder", decoder);
  torch::nn::Linear first = register_module("first", torch::nn::Linear(kInputs, kWidth));
};
TORCH_MODULE(Scrambled);

// A layer that forward runs three times, and one that is not trained.
struct RecurrentImpl : torch::nn::Module {
  RecurrentImpl() {
    for (torch::Tensor& each : frozen->parameters()) each.set_requires_grad(false);
  }
  torch::Tensor forward(torch::Tensor x) {
    x = torch::relu(first(x));
    for (int i = 0; i < 3; ++i) x = torch::relu(frozen(again(x)));
    return last(x);
  }

  torch::nn::Linear first = register_module("first", torch::nn::Linear(kInputs, kWidth));
  torch::nn::Linear again = register_module("again", torch::nn::Linear(kWidth, kWidth));
  torch::nn::Linear frozen = register_module("frozen", torch::nn::Linear(kWidth, kWidth));
  torch::nn::Linear last = register_module("last", torch::nn::Linear(kWidth, kClasses));
};
TORCH_MODULE(Recurrent);

// Uses the left branch, the right one or none.
struct BranchyImpl : torch::nn::Module {
  torch::Tensor forward(torch::Tensor x, int branch) {
    x = torch::relu(first(x));
    if (branch != 0) x = torch::relu(branch < 0 ? left(x) : right(x));
    return last(x);
  }

  torch::nn::Linear first = register_module("first", torch::nn::Linear(kInputs, kWidth));
  torch::nn::Linear left = register_module("left", torch::nn::Linear(kWidth, kWidth));
  torch::nn::Linear right = register_module("right", torch::nn::Linear(kWidth, kWidth));
  torch::nn::Linear last = register_module("last", torch::nn::Linear(kWidth, kClasses));
};
TORCH_MODULE(Branchy);

}  // namespace skein::testing
