// A decoder-only transformer with pre-norm blocks, as in GPT-2 (Radford et al. 2019).
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cmath>

#include "models/zoo.h"
#include "skein/error.h"

namespace skein {
namespace {

struct Shape {
  std::int64_t context, vocabulary, width, depth, heads;
  bool tied;
};

torch::nn::LayerNorm layer_norm(std::int64_t width) {
  return torch::nn::LayerNorm(torch::nn::LayerNormOptions({width}));
}

class DecoderBlockImpl : public torch::nn::Module {
 public:
  explicit DecoderBlockImpl(const Shape& shape)
      : heads_(shape.heads),
        norm1_(register_module("norm1", layer_norm(shape.width))),
        query_key_value_(
            register_module("query_key_value", torch::nn::Linear(shape.width, 3 * shape.width))),
        projection_(register_module("projection", torch::nn::Linear(shape.width, shape.width))),
        norm2_(register_module("norm2", layer_norm(shape.width))),
        up_(register_module("up", torch::nn::Linear(shape.width, 4 * shape.width))),
        down_(register_module("down", torch::nn::Linear(4 * shape.width, shape.width))) {
    // As many residual terms as there are blocks, twice over, add up: keep their sum's size.
    const double deviation = 0.02 / std::sqrt(2.0 * static_cast<double>(shape.depth));
    for (auto& linear : {query_key_value_, up_}) torch::nn::init::normal_(linear->weight, 0, 0.02);
    for (auto& linear : {projection_, down_})
      torch::nn::init::normal_(linear->weight, 0, deviation);
    for (auto& linear : {query_key_value_, projection_, up_, down_})
      torch::nn::init::zeros_(linear->bias);
  }

  // `future` [T, T] is true where a position must not look.
  torch::Tensor forward(torch::Tensor x, const torch::Tensor& future) {
    x = x + attend(norm1_->forward(x), future);
    return x + down_->forward(torch::gelu(up_->forward(norm2_->forward(x))));
  }

 private:
  torch::Tensor attend(const torch::Tensor& x, const torch::Tensor& future) {
    const std::int64_t batch = x.size(0), length = x.size(1), width = x.size(2);
    const auto parts = query_key_value_->forward(x)
                           .view({batch, length, 3, heads_, width / heads_})
                           .permute({2, 0, 3, 1, 4})  // [3, B, heads, T, width / heads]
                           .unbind(0);
    const double scale = 1.0 / std::sqrt(static_cast<double>(width / heads_));
    const auto scores = torch::matmul(parts[0], parts[1].transpose(-2, -1)) * scale;
    const auto weights =
        torch::softmax(scores.masked_fill(future, -std::numeric_limits<float>::infinity()), -1);
    const auto mixed = torch::matmul(weights, parts[2]).transpose(1, 2);
    return projection_->forward(mixed.reshape({batch, length, width}));
  }

  std::int64_t heads_;
  torch::nn::LayerNorm norm1_;
  torch::nn::Linear query_key_value_, projection_;
  torch::nn::LayerNorm norm2_;
  torch::nn::Linear up_, down_;
};
TORCH_MODULE(DecoderBlock);

class Gpt : public Model {
 public:
  explicit Gpt(const Shape& shape)
      : context_(shape.context),
        tokens_(register_module("tokens", torch::nn::Embedding(shape.vocabulary, shape.width))),
        positions_(register_module("positions", torch::nn::Embedding(shape.context, shape.width))),
        blocks_(register_module("blocks", torch::nn::ModuleList())),
        norm_(register_module("norm", layer_norm(shape.width))) {
    for (std::int64_t i = 0; i < shape.depth; ++i) blocks_->push_back(DecoderBlock(shape));
    torch::nn::init::normal_(tokens_->weight, 0, 0.02);
    torch::nn::init::normal_(positions_->weight, 0, 0.02);
    if (shape.tied) return;
    output_ = register_module(
        "output",
        torch::nn::Linear(torch::nn::LinearOptions(shape.width, shape.vocabulary).bias(false)));
    torch::nn::init::normal_(output_->weight, 0, 0.02);
  }

  torch::Tensor forward(torch::Tensor input) override {
    const std::int64_t length = input.size(1);
    TORCH_CHECK(length <= context_, "a sequence of ", length, " tokens, the context is ", context_);
    const auto future = torch::ones({length, length}, input.options().dtype(torch::kBool)).triu(1);
    auto x = tokens_->forward(input);
    x = x + positions_->weight.narrow(0, 0, length);
    for (const auto& block : *blocks_) x = block->as<DecoderBlock>()->forward(x, future);
    x = norm_->forward(x);
    return torch::nn::functional::linear(x, output_.is_empty() ? tokens_->weight : output_->weight);
  }

 private:
  std::int64_t context_;
  torch::nn::Embedding tokens_, positions_;
  torch::nn::ModuleList blocks_;
  torch::nn::LayerNorm norm_;
  torch::nn::Linear output_{nullptr};  // none when tied: the tokens' embedding serves for both
};

}  // namespace

std::shared_ptr<Model> make_gpt(const ModelRequest& request, SettingsReader& settings) {
  Shape shape{};
  shape.width = settings.integer("width", 128, 1, 65'536);
  shape.depth = settings.integer("depth", 4, 1, 1'000);
  shape.heads = settings.integer("heads", 4, 1, 1'024);
  shape.tied = settings.flag("tied", true);
  settings.finish("model 'gpt'");
  if (shape.width % shape.heads != 0)
    throw ConfigError(fmt::format("model.width={} is not a multiple of model.heads={}", shape.width,
                                  shape.heads));
  if (request.sample_shape.size() != 1)
    throw ConfigError(
        fmt::format("model 'gpt' needs text (a sequence of characters), but a sample of this data "
                    "has the shape ({}): use data text:FILE, or another model",
                    fmt::join(request.sample_shape, ", ")));
  shape.context = request.sample_shape[0];
  shape.vocabulary = request.classes;
  return std::make_shared<Gpt>(shape);
}

}  // namespace skein
