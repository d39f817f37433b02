// Your own module, your own data, your own loop, on any number of workers.
//
//   train_your_model [BATCH_PER_WORKER [FILE]]              alone: a world of one
//   skein run -n 4 -- train_your_model                      four workers, the same program
#include <skein/torch.h>

#include <cmath>
#include <cstdio>
#include <string>

namespace {

namespace F = torch::nn::functional;

constexpr std::int64_t kPoints = 1001;  // divided by no number of workers, on purpose
constexpr int kEpochs = 60;

struct NetImpl : torch::nn::Module {
  NetImpl()
      : first(register_module("first", torch::nn::Linear(2, 64))),
        second(register_module("second", torch::nn::Linear(64, 64))),
        last(register_module("last", torch::nn::Linear(64, 2))) {}

  torch::Tensor forward(const torch::Tensor& points) {
    return last->forward(torch::tanh(second->forward(torch::tanh(first->forward(points)))));
  }

  torch::nn::Linear first, second, last;
};
TORCH_MODULE(Net);

struct Data {
  torch::Tensor points, labels;
};

// Two half-moons, one inside the other, with some noise.
Data two_moons() {
  const auto labels = torch::arange(kPoints).remainder(2);
  const auto angle = torch::rand(kPoints) * M_PI;
  const auto upper = torch::stack({torch::cos(angle), torch::sin(angle)}, 1);
  const auto lower = torch::stack({1 - torch::cos(angle), 0.5 - torch::sin(angle)}, 1);
  const auto points = torch::where(labels.unsqueeze(1) == 0, upper, lower);
  return {points + 0.1 * torch::randn({kPoints, 2}), labels};
}

void train(std::int64_t batch_per_worker, const std::string& file) {
  auto world = skein::World::join();
  torch::manual_seed(1);  // the same on every worker: all draw the same points and the same order
  const Data data = two_moons();
  Net model;
  auto run = skein::distribute(world, *model,
                               skein::sgd(0.1).momentum(0.9).schedule("cosine", kEpochs * kPoints),
                               skein::allreduce());

  for (int epoch = 1; epoch <= kEpochs; ++epoch) {
    double loss_sum = 0;
    for (const auto& batch : torch::randperm(kPoints).split(batch_per_worker * world.size())) {
      const auto mine = batch.tensor_split(world.size())[static_cast<std::size_t>(world.rank())];
      const std::int64_t samples = mine.size(0);
      run.expect(samples);  // the last batch is smaller, and not every worker gets as much of it
      if (samples > 0) {
        const auto loss = F::cross_entropy(model->forward(data.points.index_select(0, mine)),
                                           data.labels.index_select(0, mine));
        loss.backward();
        loss_sum += loss.item<double>() * static_cast<double>(samples);
      }
      run.step(samples);  // instead of optimizer.step() and zero_grad()
    }
    const double loss = world.sum({loss_sum})[0] / kPoints;
    if (world.rank() == 0 && epoch % 10 == 0) std::printf("epoch %d  loss %.5f\n", epoch, loss);
  }
  run.save(file);
  if (world.rank() == 0)
    std::printf("%d worker%s, %lld samples, model in %s\n", world.size(),
                world.size() == 1 ? "" : "s", static_cast<long long>(run.samples()), file.c_str());
}

}  // namespace

int main(int argc, char** argv) {
  try {
    const std::int64_t batch = argc > 1 ? std::stoll(argv[1]) : 32;
    if (batch < 1) throw skein::ConfigError("BATCH_PER_WORKER: expected 1 or more");
    train(batch, argc > 2 ? argv[2] : "model.safetensors");
    return 0;
  } catch (const skein::ConfigError& error) {
    std::fprintf(stderr, "train_your_model: %s\n", error.what());
    return 2;  // the user's error: `skein run` then prints this message and no more
  } catch (const std::exception& error) {
    std::fprintf(stderr, "train_your_model: %s\n", error.what());
    return 1;
  }
}
