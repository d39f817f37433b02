// A small transformer that learns a text letter by letter. Its output layer is its embedding (tied
// weights).
//
//   skein run -n 2 -- language_model [SEQUENCES [STRATEGY]]     all of them, allreduce unless given
//
// It saves itself every 100 steps; when it is run again, with as many workers or others, it goes on
// from there.
#include <skein/torch.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <string>

namespace {

namespace F = torch::nn::functional;

const std::string kText =
    "Four score and seven years ago our fathers brought forth on this continent, a new nation, "
    "conceived in Liberty, and dedicated to the proposition that all men are created equal. "
    "Now we are engaged in a great civil war, testing whether that nation, or any nation so "
    "conceived and so dedicated, can long endure. We are met on a great battle-field of that war. "
    "We have come to dedicate a portion of that field, as a final resting place for those who here "
    "gave their lives that that nation might live. It is altogether fitting and proper that we "
    "should do this.";
constexpr std::int64_t kLetters = 128, kContext = 32, kWidth = 64, kHeads = 4, kLayers = 2;
constexpr std::int64_t kBatch = 16, kTotal = 9600;  // sequences: of a worker in a step; in all

struct BlockImpl : torch::nn::Module {
  BlockImpl()
      : norm1(register_module("norm1", norm())),
        qkv(register_module("qkv", torch::nn::Linear(kWidth, 3 * kWidth))),
        join(register_module("join", torch::nn::Linear(kWidth, kWidth))),
        norm2(register_module("norm2", norm())),
        up(register_module("up", torch::nn::Linear(kWidth, 4 * kWidth))),
        down(register_module("down", torch::nn::Linear(4 * kWidth, kWidth))) {}

  static torch::nn::LayerNorm norm() {
    return torch::nn::LayerNorm(torch::nn::LayerNormOptions({kWidth}));
  }

  torch::Tensor forward(torch::Tensor x) {
    const auto length = x.size(1);
    const auto parts = qkv->forward(norm1->forward(x))
                           .view({-1, length, 3, kHeads, kWidth / kHeads})
                           .permute({2, 0, 3, 1, 4});  // which, batch, head, time, width
    const auto scores =
        parts[0].matmul(parts[1].transpose(2, 3)) / std::sqrt(1.0 * kWidth / kHeads);
    const auto later = torch::ones({length, length}, torch::kBool).triu(1);
    const auto seen = scores.masked_fill(later, -1e9).softmax(3).matmul(parts[2]);
    x = x + join->forward(seen.transpose(1, 2).reshape({-1, length, kWidth}));
    return x + down->forward(torch::gelu(up->forward(norm2->forward(x))));
  }

  torch::nn::LayerNorm norm1;
  torch::nn::Linear qkv, join;
  torch::nn::LayerNorm norm2;
  torch::nn::Linear up, down;
};
TORCH_MODULE(Block);

struct LanguageModelImpl : torch::nn::Module {
  LanguageModelImpl() {
    torch::nn::init::normal_(letters->weight, 0, 0.05);
    torch::nn::init::normal_(places->weight, 0, 0.05);
    for (int i = 0; i < kLayers; ++i) blocks->push_back(Block());
  }

  // The score of every letter to come next, at each place.
  torch::Tensor forward(const torch::Tensor& text) {
    const auto x = letters->forward(text) + places->forward(torch::arange(text.size(1)));
    // Tied: the embedding's own tensor. Its gradient is the sum of what both uses give it.
    return F::linear(norm->forward(blocks->forward(x)), letters->weight);
  }

  torch::nn::Embedding letters = register_module("letters", torch::nn::Embedding(kLetters, kWidth));
  torch::nn::Embedding places = register_module("places", torch::nn::Embedding(kContext, kWidth));
  torch::nn::Sequential blocks = register_module("blocks", torch::nn::Sequential());
  torch::nn::LayerNorm norm = register_module("norm", BlockImpl::norm());
};
TORCH_MODULE(LanguageModel);

torch::Tensor letters_of(const std::string& text) {
  return torch::tensor(std::vector<std::int64_t>(text.begin(), text.end()));
}

// `count` sequences of the text, from anywhere, each with one letter more than the model reads.
torch::Tensor draw(const torch::Tensor& text, std::int64_t count) {
  const auto from = torch::randint(text.size(0) - kContext, {count, 1});
  return text.index({from + torch::arange(kContext + 1)});
}

std::string go_on(LanguageModel& model, std::string text, int letters) {
  const torch::NoGradGuard no_grad;
  for (; letters > 0; --letters) {
    const std::string seen =
        text.substr(text.size() - std::min<std::size_t>(text.size(), kContext));
    const auto scores = model->forward(letters_of(seen).unsqueeze(0));
    text += static_cast<char>(scores[0][-1].argmax().item<std::int64_t>());
  }
  return text;
}

void train(std::int64_t sequences, const std::string& strategy) {
  auto world = skein::World::join();
  torch::manual_seed(1 + world.rank());  // each worker draws sequences of its own
  const auto text = letters_of(kText);
  LanguageModel model;  // every worker gets rank 0's weights
  auto run = skein::distribute(world, *model,
                               skein::adamw(3e-3).weight_decay(0.01).no_decay_1d().clip(1).schedule(
                                   "cosine:warmup=500", kTotal),
                               skein::StrategySpec(strategy));

  const bool lockstep = strategy == "allreduce" || strategy == "dear";
  const std::int64_t saved = run.resume("language_model.checkpoints").number("step");
  if (saved > 0 && world.rank() == 0)
    std::printf("goes on after step %lld\n", static_cast<long long>(saved));
  double loss_sum = 0;
  for (std::int64_t step = saved + 1; !run.done(sequences); ++step) {
    const auto batch = draw(text, kBatch);
    const auto scores = model->forward(batch.narrow(1, 0, kContext));
    const auto loss = F::cross_entropy(scores.reshape({-1, kLetters}),
                                       batch.narrow(1, 1, kContext).reshape({-1}));
    loss.backward();
    run.step(kBatch);
    loss_sum += loss.item<double>();
    if (step % 100 != 0) continue;
    if (world.rank() == 0)
      std::printf("step %lld  loss %.3f\n", static_cast<long long>(step), loss_sum / 100);
    loss_sum = 0;
    // All workers come here equally often in lockstep alone.
    if (lockstep)
      run.save_checkpoint("language_model.checkpoints", {{"step", std::to_string(step)}});
  }
  if (sequences < kTotal) return;
  run.save("language_model.safetensors");  // leaves the same model on all workers
  if (world.rank() == 0) std::printf("%s\n", go_on(model, "Now we are", 30).c_str());
}

}  // namespace

int main(int argc, char** argv) {
  try {
    const std::int64_t sequences = argc > 1 ? std::stoll(argv[1]) : kTotal;
    train(sequences, argc > 2 ? argv[2] : "allreduce");
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "language_model: %s\n", error.what());
    return dynamic_cast<const skein::ConfigError*>(&error) ? 2 : 1;
  }
}
