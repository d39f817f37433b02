#include <fmt/format.h>

#include <utility>

#include "sim/profiles/architecture.h"

namespace skein::sim {
namespace {

constexpr std::int64_t kVocabulary = 30522;
constexpr std::int64_t kPositions = 512;
constexpr std::int64_t kTokenTypes = 2;
constexpr std::int64_t kTokens = 64;  // of one sample

class Bert {
 public:
  Bert(std::int64_t hidden, std::int64_t heads) : hidden_(hidden), heads_(heads) {}

  Architecture build(int encoder_layers) {
    embeddings("bert.embeddings");
    for (int layer = 0; layer < encoder_layers; ++layer)
      encoder_layer(fmt::format("bert.encoder.layer.{}", layer));
    linear("bert.pooler.dense", hidden_, hidden_, 1, kActivation);
    masked_words("cls.predictions");
    linear("cls.seq_relationship", hidden_, 2, 1);
    return std::move(layers_);
  }

 private:
  void embeddings(const std::string& name) {
    embedding(name + ".word_embeddings", kVocabulary);
    embedding(name + ".token_type_embeddings", kTokenTypes);
    embedding(name + ".position_embeddings", kPositions);
    layer_norm(name + ".LayerNorm");
  }

  void encoder_layer(const std::string& name) {
    const std::string self = name + ".attention.self", output = name + ".attention.output";
    linear(self + ".query", hidden_, hidden_, kTokens);
    linear(self + ".key", hidden_, hidden_, kTokens);
    linear(self + ".value", hidden_, hidden_, kTokens);
    attention(self);
    linear(output + ".dense", hidden_, hidden_, kTokens);
    residual_norm(output + ".LayerNorm");
    linear(name + ".intermediate.dense", hidden_, 4 * hidden_, kTokens, kActivation);
    linear(name + ".output.dense", 4 * hidden_, hidden_, kTokens);
    residual_norm(name + ".output.LayerNorm");
  }

  // The decoder multiplies by the matrix of the word embeddings. Its gradient is complete only when
  // their backward ends, the last of all: the matrix is listed there, and only the bias here.
  void masked_words(const std::string& name) {
    linear(name + ".transform.dense", hidden_, hidden_, kTokens, kActivation);
    layer_norm(name + ".transform.LayerNorm");
    layers_.push_back({name + ".decoder",
                       {kVocabulary},
                       kTokens * hidden_ * kVocabulary,
                       kAddition * kTokens * kVocabulary});
  }

  void embedding(const std::string& name, std::int64_t rows) {
    layers_.push_back({name, {rows * hidden_}, 0, kAddition * kTokens * hidden_});
  }

  void linear(const std::string& name, std::int64_t inputs, std::int64_t outputs, std::int64_t rows,
              std::int64_t activation = 0) {
    const std::int64_t weights = inputs * outputs;
    layers_.push_back(
        {name, {weights, outputs}, rows * weights, (kAddition + activation) * rows * outputs});
  }

  // Scores of every token against every other, in each head, and the mean that they weigh.
  void attention(const std::string& name) {
    const std::int64_t scores = kTokens * kTokens;
    layers_.push_back({name, {}, 2 * scores * hidden_, kSoftmax * scores * heads_});
  }

  void layer_norm(const std::string& name) {
    layers_.push_back({name, {hidden_, hidden_}, 0, kNormalisation * kTokens * hidden_});
  }

  void residual_norm(const std::string& name) {
    layer_norm(name);
    layers_.back().elementwise += kAddition * kTokens * hidden_;
  }

  std::int64_t hidden_, heads_;
  Architecture layers_;
};

}  // namespace

Architecture bert_base() { return Bert(768, 12).build(12); }
Architecture bert_large() { return Bert(1024, 16).build(24); }

}  // namespace skein::sim
