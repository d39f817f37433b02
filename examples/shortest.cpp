// The shortest whole program: alone, or on any number of workers by `skein run -n 2 -- shortest`.
#include <skein/torch.h>

#include <cstdio>

int main() {
  auto world = skein::World::join();
  torch::manual_seed(1 + world.rank());  // each worker draws samples of its own
  torch::nn::Sequential model(torch::nn::Linear(2, 32), torch::nn::Tanh(),
                              torch::nn::Linear(32, 1));
  auto run = skein::distribute(world, *model, skein::adamw(0.01));

  double loss = 0;
  while (!run.done(50000)) {
    const auto x = torch::rand({64, 2}), y = x.prod(1, true);  // learn to multiply
    const auto error = torch::mse_loss(model->forward(x), y);
    error.backward();
    run.step(x.size(0));  // averages the gradients of all workers and updates the model
    loss = error.item<double>();
  }
  run.save("product.safetensors");
  if (world.rank() == 0) std::printf("%d workers, loss %.4f\n", world.size(), loss);
}
