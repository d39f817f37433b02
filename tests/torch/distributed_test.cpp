// skein::distribute as a user's program calls it, alone and on forked workers.
#include <gtest/gtest.h>
#include <torch/torch.h>
#include <unistd.h>

#include "on_workers.h"
#include "skein/torch.h"
#include "torch/distributed_impl.h"

namespace skein {
namespace {

namespace F = torch::nn::functional;
using test::on_workers;

// One branch is used only for positive `which`; `tied` is registered under two names.
struct BranchyImpl : torch::nn::Module {
  BranchyImpl() {
    first = register_module("first", torch::nn::Linear(6, 8));
    left = register_module("left", torch::nn::Linear(8, 8));
    right = register_module("right", torch::nn::Linear(8, 8));
    norm = register_module("norm", torch::nn::BatchNorm1d(8));
    tied = register_parameter("tied", 0.3 * torch::randn({8, 8}));
    register_parameter("tied_again", tied);
    frozen = register_parameter("frozen", torch::randn({8}), /*requires_grad=*/false);
  }
  torch::Tensor forward(torch::Tensor x, int which) {
    x = norm(torch::relu(first(x)));
    x = which > 0 ? left(x) : which < 0 ? right(x) : x;
    return torch::mm(torch::mm(x, tied), tied.t()) + frozen;
  }
  torch::nn::Linear first{nullptr}, left{nullptr}, right{nullptr};
  torch::nn::BatchNorm1d norm{nullptr};
  torch::Tensor tied, frozen;
};
TORCH_MODULE(Branchy);

// What an optimizer should hold: each tensor once.
std::vector<torch::Tensor> trained_by(const torch::nn::Module& module) {
  std::vector<torch::Tensor> trained;
  for (const auto& each : module.named_parameters())
    if (each.value().requires_grad() && each.key() != "tied_again") trained.push_back(each.value());
  return trained;
}

torch::Tensor batch_of(int step, std::int64_t begin, std::int64_t count) {
  torch::manual_seed(static_cast<std::uint64_t>(step) + 77);
  return torch::randn({16, 6}).narrow(0, begin, count);
}

TEST(Distributed, AloneIsPlainTraining) {
  on_workers(1, [](World& world) {
    torch::manual_seed(1);
    Branchy mine, plain;
    {
      const torch::NoGradGuard no_grad;
      const auto from = mine->named_parameters();
      for (auto& each : plain->named_parameters()) each.value().copy_(from[each.key()]);
    }
    Distributed run = distribute(
        world, *mine,
        [](std::vector<torch::Tensor> parameters) -> std::unique_ptr<torch::optim::Optimizer> {
          return std::make_unique<torch::optim::SGD>(parameters,
                                                     torch::optim::SGDOptions(0.1).momentum(0.9));
        },
        0.1);
    const std::vector<torch::Tensor> trained = trained_by(*plain);
    torch::optim::SGD optimizer(trained, torch::optim::SGDOptions(0.1).momentum(0.9));
    for (int step = 0; step < 10; ++step) {
      const auto x = batch_of(step, 0, 16);
      mine->forward(x, 1).square().mean().backward();
      run.step(16);
      optimizer.zero_grad();
      plain->forward(x, 1).square().mean().backward();
      optimizer.step();
    }
    const auto got = mine->named_parameters();
    for (const auto& each : plain->named_parameters()) {
      if (each.key().rfind("right", 0) == 0)
        continue;  // unused: torch leaves it alone, so do we (zero gradient)
      EXPECT_TRUE(torch::equal(got[each.key()], each.value()))
          << each.key() << (got[each.key()] - each.value()).abs().max();
    }
    EXPECT_EQ(run.samples(), 160);
    EXPECT_EQ(run.steps(), 10);
  });
}

TEST(Distributed, KeepsAWorldThatTheProgramDoesNot) {
  test::as_workers(2, [](World world) {
    torch::nn::Linear layer(2, 1);
    Distributed run = distribute(std::move(world), *layer, sgd(0.1));
    { const World gone(std::move(world)); }
    EXPECT_EQ(run.world().size(), 2);
    layer->forward(torch::ones({1, 2})).sum().backward();
    run.step(1);
    EXPECT_EQ(run.world().sum({1}).front(), 2);
  });
}

// Rank r uses the branch that the others do not; some steps use neither. Compared with one process
// that sees all rows, with each rank's part as its own forward (batch norm looks at a rank's rows
// only).
TEST(Distributed, ParametersWithoutGradientOnSomeOrAllRanksAreZeroGradients) {
  on_workers(2, [](World& world) {
    torch::manual_seed(2);
    Branchy model, serial;
    {
      const torch::NoGradGuard no_grad;
      const auto from = model->named_parameters();
      for (auto& each : serial->named_parameters()) each.value().copy_(from[each.key()]);
    }
    Distributed run =
        distribute(world, *model, sgd(0.05).momentum(0.9), allreduce().set("fusion", "none"));
    std::vector<torch::Tensor> trained = trained_by(*serial);
    torch::optim::SGD optimizer(trained, torch::optim::SGDOptions(0.05).momentum(0.9));
    const auto branch = [](int step, int rank) { return step % 3 == 2 ? 0 : rank == 0 ? 1 : -1; };
    for (int step = 0; step < 9; ++step) {
      const std::int64_t rows[] = {4 + step % 2, 12 - step % 2};
      const int rank = world.rank();
      run.expect(rows[rank]);
      model->forward(batch_of(step, rank == 0 ? 0 : rows[0], rows[rank]), branch(step, rank))
          .square()
          .mean()
          .backward();
      run.step(rows[rank]);
      run.impl().replicas().verify();
      optimizer.zero_grad();
      for (auto& each : trained)
        if (!each.grad().defined()) each.mutable_grad() = torch::zeros_like(each);
      for (int r = 0; r < 2; ++r) {
        const auto loss =
            serial->forward(batch_of(step, r == 0 ? 0 : rows[0], rows[r]), branch(step, r))
                .square()
                .mean();
        (loss * (static_cast<double>(rows[r]) / 16)).backward();
      }
      optimizer.step();
    }
    const auto got = model->named_parameters();
    for (const auto& each : serial->named_parameters())
      EXPECT_TRUE(torch::allclose(got[each.key()], each.value(), 1e-5, 1e-6)) << each.key();
  });
}

TEST(Distributed, StartsFromRank0WithBuffersAndFrozenParameters) {
  on_workers(3, [](World& world) {
    torch::manual_seed(static_cast<std::uint64_t>(world.rank()) + 5);
    Branchy model;
    model->norm->running_mean.fill_(world.rank() + 1);
    Distributed run = distribute(world, *model, sgd(0.1));
    run.impl().replicas().verify();
    torch::manual_seed(5);
    Branchy rank_0;
    EXPECT_TRUE(torch::equal(model->frozen, rank_0->frozen));
    EXPECT_TRUE(torch::equal(model->tied, rank_0->tied));
    EXPECT_TRUE(torch::equal(model->norm->running_mean, torch::ones({8})));
    // Saved buffers are averages; the live ones stay as they are.
    model->norm->running_mean.fill_(world.rank() + 1);
    const std::string path = "/tmp/skein-test-" + std::to_string(::getppid()) + ".safetensors";
    run.save(path);
    EXPECT_TRUE(torch::equal(model->norm->running_mean,
                             torch::full({8}, static_cast<float>(world.rank() + 1))));
    world.barrier();
    run.load(path);
    EXPECT_TRUE(torch::equal(model->norm->running_mean, torch::full({8}, 2.0F)));
    world.barrier();
    if (world.rank() == 0) std::remove(path.c_str());
  });
}

TEST(Distributed, ASecondBackwardMustBeAnnounced) {
  on_workers(1, [](World& world) {
    Branchy model;
    Distributed run = distribute(world, *model, sgd(0.1));
    const auto backward = [&] { model->forward(batch_of(0, 0, 16), 1).square().mean().backward(); };
    backward();
    EXPECT_THROW(backward(), ConfigError);
    run.step(16);
    run.accumulate(2);
    backward();
    EXPECT_THROW(run.expect(3), ConfigError) << "too late: the step has begun";
    backward();
    EXPECT_NO_THROW(run.step(32));
    EXPECT_THROW(run.step(-1), ConfigError);
  });
}

TEST(Distributed, TheUserMayClearGradientsAndReplaceValues) {
  on_workers(1, [](World& world) {
    torch::manual_seed(3);
    Branchy model;
    Distributed run = distribute(world, *model, sgd(1.0));
    model->zero_grad();
    for (auto& each : model->parameters()) each.mutable_grad() = torch::Tensor();
    const auto before = model->tied.detach().clone();
    model->forward(batch_of(0, 0, 16), 1).square().mean().backward();
    const auto gradient = model->tied.grad().clone();
    run.step(16);
    EXPECT_TRUE(torch::allclose(model->tied, before - gradient));
    model->tied.set_data(before.clone());  // as torch::load does
    model->forward(batch_of(0, 0, 16), 1).square().mean().backward();
    run.step(16);
    EXPECT_FALSE(torch::equal(model->tied, before)) << "the update went elsewhere";
  });
}

TEST(Distributed, TheModuleIsOrdinaryAgainAfterwards) {
  on_workers(1, [](World& world) {
    Branchy model;
    {
      Distributed run = distribute(world, *model, adamw(0.01).weight_decay(0.1).no_decay_1d());
      model->forward(batch_of(0, 0, 16), 1).square().mean().backward();
      run.step(16);
    }
    torch::optim::SGD optimizer(std::vector<torch::Tensor>{model->tied},
                                torch::optim::SGDOptions(0.1));
    model->forward(batch_of(0, 0, 16), 1).square().mean().backward();
    EXPECT_NO_THROW(optimizer.step());
  });
}

TEST(Distributed, ASumOfDoublesKeepsTheirDigits) {
  on_workers(2, [](World& world) {
    const double small = world.rank() == 0 ? 0.1 : 0.7, large = world.rank() == 0 ? 0x1p52 : 3.0;
    const auto sums = world.sum({1234567890.125, small, large, -1e300});
    EXPECT_EQ(sums, (std::vector{2 * 1234567890.125, 0.1 + 0.7, 0x1p52 + 3, -2e300}));
  });
}

}  // namespace
}  // namespace skein
