// Tensors of all workers, together: beside what one process computes from all of them.
#include "skein/torch_tensors.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <cmath>

#include "on_workers.h"

namespace skein::tensors_test {
namespace {

constexpr int kWorkers = 3;

// What rank `rank` brings: whole numbers, so that sums are exact in every order.
torch::Tensor brought(int rank, torch::ScalarType type, const std::vector<std::int64_t>& shape) {
  torch::manual_seed(static_cast<std::uint64_t>(rank) + 5);
  return torch::randint(-40, 40, shape, torch::kInt64).to(type);
}

torch::Tensor expected(Reduce how, torch::ScalarType type, const std::vector<std::int64_t>& shape) {
  std::vector<torch::Tensor> all;
  for (int rank = 0; rank < kWorkers; ++rank)
    all.push_back(brought(rank, type, shape).to(type == torch::kInt64 ? type : torch::kFloat64));
  const torch::Tensor stacked = torch::stack(all);
  torch::Tensor result = how == Reduce::max   ? stacked.amax(0)
                         : how == Reduce::min ? stacked.amin(0)
                                              : stacked.sum(0);
  if (how == Reduce::mean)
    result = (type == torch::kFloat64 ? result : result.to(torch::kFloat32)) / kWorkers;
  return result.to(type);
}

TEST(Tensors, AreReducedExactlyWhateverTheirTypeAndShape) {
  test::on_workers(kWorkers, [](World& world) {
    for (const auto type : {torch::kFloat32, torch::kFloat64, torch::kInt64, torch::kBFloat16})
      for (const Reduce how : {Reduce::sum, Reduce::mean, Reduce::max, Reduce::min})
        for (const std::vector<std::int64_t>& shape :
             {std::vector<std::int64_t>{}, {0, 3}, {7}, {3, 5, 2}, {300, 1000}}) {
          if (how == Reduce::mean && type == torch::kInt64) continue;
          torch::Tensor tensor = brought(world.rank(), type, shape);
          all_reduce(world, tensor, how);
          EXPECT_TRUE(torch::equal(tensor, expected(how, type, shape)))
              << type << " " << tensor.sizes() << " " << static_cast<int>(how);
        }
  });
}

// A column of a matrix, and a parameter that wants a gradient.
TEST(Tensors, AreReducedWhereTheyLie) {
  test::on_workers(2, [](World& world) {
    for (const auto type : {torch::kFloat32, torch::kInt64}) {
      const torch::Tensor matrix = torch::ones({4, 3}, type);
      all_reduce(world, matrix.select(1, 1));
      EXPECT_EQ(matrix.sum().item<double>(), 16);
    }
    const torch::Tensor parameter = torch::ones({5}, torch::requires_grad());
    all_reduce(world, parameter, Reduce::mean);
    EXPECT_TRUE(torch::equal(parameter, torch::ones({5})));
    EXPECT_TRUE(parameter.is_leaf());
  });
}

TEST(Tensors, NaNOfOneIsNaNOfAll) {
  test::on_workers(2, [](World& world) {
    for (const auto type : {torch::kFloat32, torch::kFloat64, torch::kBFloat16})
      for (const Reduce how : {Reduce::sum, Reduce::max, Reduce::min}) {
        auto tensor = torch::full({3}, world.rank() == 1 ? NAN : 1.0, type);
        all_reduce(world, tensor, how);
        EXPECT_TRUE(tensor.isnan().all().item<bool>());
      }
  });
}

TEST(Tensors, AreBroadcastBitForBit) {
  test::on_workers(kWorkers, [](World& world) {
    for (const auto type : {torch::kFloat32, torch::kInt64, torch::kBFloat16, torch::kBool}) {
      torch::Tensor tensor = brought(world.rank(), type, {200, 700}).t();
      broadcast(world, tensor, 2);
      EXPECT_TRUE(torch::equal(tensor, brought(2, type, {200, 700}).t()));
    }
  });
}

TEST(Tensors, OfGroupsAreTheirOwn) {
  test::on_workers(kWorkers, [](World& world) {
    Group group = world.split(world.rank() / 2);
    for (const auto type : {torch::kFloat32, torch::kFloat64}) {
      torch::Tensor tensor = torch::full({70000}, world.rank() + 1, type);
      all_reduce(group, tensor);
      EXPECT_TRUE(torch::equal(tensor, torch::full({70000}, 3, type)));  // 1 + 2, and 3
    }
  });
}

template <typename Call>
std::string error_of(Call call) {
  try {
    call();
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "";
}

TEST(Tensors, WhatCannotBeIsAnErrorOnAll) {
  test::on_workers(2, [](World& world) {
    const bool first = world.rank() == 0;
    const auto of = [&](const torch::Tensor& tensor, Reduce how = Reduce::sum) {
      return error_of([&] { all_reduce(world, tensor, how); });
    };
    EXPECT_NE(of(torch::ones({3}), first ? Reduce::sum : Reduce::max)
                  .find("rank 1 called skein::all_reduce() (max)"),
              std::string::npos);
    EXPECT_EQ(
        of(torch::ones({3 + world.rank()})),
        "the workers made different calls: rank 0 called skein::all_reduce() (sum) of a Float "
        "tensor [3], rank 1 called skein::all_reduce() (sum) of a Float tensor [4]; expected the "
        "same of all");
    EXPECT_NE(of(first ? torch::ones({3}) : torch::Tensor()), "");
    EXPECT_NE(of(torch::Tensor()), "");
    EXPECT_NE(of(torch::ones({3}, torch::kInt64), Reduce::mean), "");
    EXPECT_NE(of(torch::ones({3}, torch::kComplexFloat)), "");
    EXPECT_NE(of(torch::ones({3}).to_sparse()), "");
    EXPECT_NE(error_of([&] { broadcast(world, torch::ones({3}), 2); }), "");
    EXPECT_EQ(world.sum({1})[0], 2);
  });
}

}  // namespace
}  // namespace skein::tensors_test
