#include <skein/torch.h>

#include <cstdio>

namespace F = torch::nn::functional;

int main() {
  torch::manual_seed(1);
  const auto points = torch::randn({4096, 2});
  const auto labels = (points.prod(1) > 0).to(torch::kLong);
  torch::nn::Sequential model(torch::nn::Linear(2, 64), torch::nn::Tanh(),
                              torch::nn::Linear(64, 2));
  auto run = skein::distribute(skein::World::join(), *model, skein::sgd(0.1).momentum(0.9));

  for (int epoch = 1; epoch <= 3; ++epoch) {
    for (auto batch : torch::randperm(points.size(0)).split(64)) {
      batch = batch.tensor_split(run.world().size())[run.world().rank()];  // this worker's part
      F::cross_entropy(model->forward(points.index_select(0, batch)), labels.index_select(0, batch))
          .backward();
      run.step(batch.size(0));
    }
    const auto right = (model->forward(points).argmax(1) == labels).to(torch::kFloat).mean();
    std::printf("epoch %d  %.1f %% right\n", epoch, 100 * right.item<double>());
  }
  run.save("model.safetensors");
}
