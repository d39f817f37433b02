// A backbone learns one task; then it is frozen, and a new head on it learns another; then both
// learn, the backbone slowly.
//
//   skein run -n 2 -- fine_tune
#include <skein/torch.h>

#include <cstdio>

namespace {

namespace F = torch::nn::functional;

constexpr std::int64_t kBatch = 32, kFeatures = 64;

torch::nn::Sequential new_backbone() {
  using torch::nn::Linear, torch::nn::Tanh;
  return torch::nn::Sequential(Linear(2, kFeatures), Tanh(), Linear(kFeatures, kFeatures), Tanh());
}

// A backbone with a head for two classes.
struct NetImpl : torch::nn::Module {
  explicit NetImpl(torch::nn::Sequential trunk) : backbone(register_module("backbone", trunk)) {}
  torch::Tensor forward(const torch::Tensor& x) { return head->forward(backbone->forward(x)); }

  torch::nn::Sequential backbone;
  torch::nn::Linear head = register_module("head", torch::nn::Linear(kFeatures, 2));
};
TORCH_MODULE(Net);

torch::Tensor is_in_a_circle(const torch::Tensor& x) {
  return (x.norm(2, 1) < 0.8).to(torch::kLong);
}
torch::Tensor is_on_a_diagonal_side(const torch::Tensor& x) {
  return (x.select(1, 0) * x.select(1, 1) > 0).to(torch::kLong);
}

using Task = torch::Tensor (*)(const torch::Tensor& points);

void train(skein::World& world, Net& model, Task task, const skein::OptimizerSpec& optimizer,
           const char* what) {
  auto run = skein::distribute(world, *model, optimizer);
  while (!run.done(40000)) {
    const auto x = torch::rand({kBatch, 2}) * 2 - 1;
    F::cross_entropy(model->forward(x), task(x)).backward();
    run.step(kBatch);
  }
  run.flush();
  const torch::NoGradGuard no_grad;
  const auto x = torch::rand({1000, 2}) * 2 - 1;
  const auto right = (model->forward(x).argmax(1) == task(x)).sum().item<std::int64_t>();
  const auto all = world.sum_integers({right, x.size(0)});
  if (world.rank() == 0)
    std::printf("%s: %.1f %% right\n", what,
                100.0 * static_cast<double>(all[0]) / static_cast<double>(all[1]));
}

void pretrain_and_fine_tune() {
  auto world = skein::World::join();
  torch::manual_seed(1 + world.rank());  // each worker draws points of its own
  auto backbone = new_backbone();
  Net first(backbone);
  train(world, first, is_in_a_circle, skein::adamw(5e-3), "the first task");
  if (world.rank() == 0) torch::save(backbone, "backbone.pt");
  world.barrier();

  // Another program would begin here. Frozen before distribute(): no gradient is computed for
  // these, nothing is sent and no state is kept, and they stay as they are, bit for bit.
  torch::load(backbone, "backbone.pt");
  for (auto& parameter : backbone->parameters()) parameter.set_requires_grad(false);
  const auto before = torch::nn::utils::parameters_to_vector(backbone->parameters()).clone();
  Net second(backbone);
  train(world, second, is_on_a_diagonal_side, skein::adamw(5e-3), "the second task");
  const bool same =
      torch::equal(before, torch::nn::utils::parameters_to_vector(backbone->parameters()));
  if (world.rank() == 0) std::printf("the backbone %s\n", same ? "is as it was" : "has changed");

  // What pays off last: everything learns, what was learnt before at a tenth of the rate.
  for (auto& parameter : backbone->parameters()) parameter.set_requires_grad(true);
  const auto slowly = skein::adamw(5e-3).group(skein::group("backbone.*").factor(0.1));
  train(world, second, is_on_a_diagonal_side, slowly, "the second task, with the backbone");
}

}  // namespace

int main() {
  try {
    pretrain_and_fine_tune();
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "fine_tune: %s\n", error.what());
    return dynamic_cast<const skein::ConfigError*>(&error) ? 2 : 1;
  }
}
