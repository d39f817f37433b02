#include <torch/torch.h>

#include <cstdio>

namespace F = torch::nn::functional;

int main() {
  torch::manual_seed(1);
  const auto points = torch::randn({4096, 2});
  const auto labels = (points.prod(1) > 0).to(torch::kLong);
  torch::nn::Sequential model(torch::nn::Linear(2, 64), torch::nn::Tanh(),
                              torch::nn::Linear(64, 2));
  torch::optim::SGD optimizer(model->parameters(), torch::optim::SGDOptions(0.1).momentum(0.9));

  for (int epoch = 1; epoch <= 3; ++epoch) {
    for (auto batch : torch::randperm(points.size(0)).split(64)) {
      optimizer.zero_grad();
      F::cross_entropy(model->forward(points.index_select(0, batch)), labels.index_select(0, batch))
          .backward();
      optimizer.step();
    }
    const auto right = (model->forward(points).argmax(1) == labels).to(torch::kFloat).mean();
    std::printf("epoch %d  %.1f %% right\n", epoch, 100 * right.item<double>());
  }
  torch::save(model, "model.pt");
}
