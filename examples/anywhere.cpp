// One program for every launcher: World::join() finds out who has started it.
//
//   anywhere                                    alone
//   skein run -n 2 -- anywhere                  on this host
//   mpirun -n 2 anywhere [mpi]                  on hosts that MPI knows; mpi: through MPI too
//   torchrun --no-python --nproc-per-node 2 anywhere
//   srun -n 2 anywhere
#include <skein/torch.h>

#include <cstdio>
#include <string>

namespace {

namespace F = torch::nn::functional;

// The same samples on any number of workers: all draw the global batch, and each takes its part.
void train(const std::string& fabric) {
  skein::JoinOptions options;
  options.fabric = fabric;
  auto world = skein::World::join(options);
  torch::manual_seed(1);
  torch::nn::Sequential model(torch::nn::Linear(8, 64), torch::nn::Tanh(),
                              torch::nn::Linear(64, 1));
  auto run = skein::distribute(world, *model, skein::sgd(0.05).momentum(0.9), skein::dear());
  const auto slope = torch::randn({8, 1});

  for (int step = 1; step <= 300; ++step) {
    const auto batch = torch::randn({64, 8});
    const auto x = batch.tensor_split(world.size())[static_cast<std::size_t>(world.rank())];
    run.expect(x.size(0));
    const auto loss = F::mse_loss(model->forward(x), torch::sin(x.matmul(slope)));
    loss.backward();
    run.step(x.size(0));
    if (step % 100 != 0) continue;
    const double mine = loss.item<double>() * static_cast<double>(x.size(0));
    const double all = world.sum({mine})[0] / 64;
    if (world.rank() == 0) std::printf("step %d  loss %.4f\n", step, all);
  }
  run.save("anywhere.safetensors");
  if (world.rank() == 0)
    std::printf("trained by %d worker%s\n", world.size(), world.size() == 1 ? "" : "s");
}

}  // namespace

int main(int argc, char** argv) {
  try {
    train(argc > 1 ? argv[1] : "auto");
    return 0;
  } catch (const std::exception& error) {  // 2: the user's error, which launchers need not repeat
    std::fprintf(stderr, "anywhere: %s\n", error.what());
    return dynamic_cast<const skein::ConfigError*>(&error) ? 2 : 1;
  }
}
