// Two models that are trained against each other: a generator learns to place points on a circle, a
// discriminator to tell them from real ones. Each has a Distributed of its own.
//
//   skein run -n 2 -- gan
#include <skein/torch.h>

#include <cmath>
#include <cstdio>

namespace {

namespace F = torch::nn::functional;

constexpr std::int64_t kBatch = 64, kNoise = 8, kHidden = 64;
constexpr int kSteps = 900;

torch::nn::Sequential perceptron(std::int64_t in, std::int64_t out) {
  using torch::nn::LeakyReLU, torch::nn::Linear;
  return torch::nn::Sequential(Linear(in, kHidden), LeakyReLU(), Linear(kHidden, kHidden),
                               LeakyReLU(), Linear(kHidden, out));
}

// Points on a circle of radius 2, with some noise.
torch::Tensor real_points(std::int64_t count) {
  const auto angle = torch::rand({count}) * (2 * M_PI);
  return 2 * torch::stack({angle.cos(), angle.sin()}, 1) + 0.05 * torch::randn({count, 2});
}

torch::Tensor loss_if(bool real, const torch::Tensor& scores) {
  return F::binary_cross_entropy_with_logits(scores, torch::full_like(scores, real ? 1.0 : 0.0));
}

void train() {
  auto world = skein::World::join();
  torch::manual_seed(1 + world.rank());  // each worker draws points of its own
  auto generator = perceptron(kNoise, 2), discriminator = perceptron(2, 1);
  const auto adam = skein::adamw(3e-3).betas(0.5, 0.999);
  auto g = skein::distribute(world, *generator, adam);
  auto d = skein::distribute(world, *discriminator, adam);
  const auto generators = generator->parameters(), discriminators = discriminator->parameters();

  for (int step = 1; step <= kSteps; ++step) {
    const auto made = generator->forward(torch::randn({kBatch, kNoise}));

    const auto told = loss_if(true, discriminator->forward(real_points(kBatch))) +
                      loss_if(false, discriminator->forward(made.detach()));
    told.backward();
    d.step(kBatch);

    // This loss reaches the generator through the discriminator, which must not learn from it: it
    // is only the generator's parameters that get gradients.
    const auto fooled = loss_if(true, discriminator->forward(made));
    fooled.backward({}, {}, false, generators);
    g.step(kBatch);

    if (step % 300 != 0) continue;
    const torch::NoGradGuard no_grad;
    const auto radius = generator->forward(torch::randn({1000, kNoise})).norm(2, 1);
    const auto off = world.sum({(radius - 2).abs().mean().item<double>()})[0] / world.size();
    if (world.rank() == 0) std::printf("step %d  distance from the circle %.3f\n", step, off);
  }
  g.save("generator.safetensors");
}

}  // namespace

int main() {
  try {
    train();
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "gan: %s\n", error.what());
    return dynamic_cast<const skein::ConfigError*>(&error) ? 2 : 1;
  }
}
