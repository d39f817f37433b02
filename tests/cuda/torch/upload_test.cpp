// Batches that come to a GPU while it computes, and numbers that leave it so.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <filesystem>
#include <thread>

#include "data/prefetch.h"
#include "data/upload.h"
#include "torch/late_number.h"
#include "torch/on_workers.h"
#include "train/compute.h"

namespace skein {
namespace {

const torch::Device kGpu(torch::kCUDA, 0);

class Uploads : public testing::Test {
 protected:
  void SetUp() override {
    if (!std::filesystem::exists("/dev/nvidiactl")) GTEST_SKIP() << "there is no /dev/nvidiactl";
  }
};

// Keeps the GPU busy for a while, on this thread's stream.
torch::Tensor busy(const torch::Tensor& start) {
  torch::Tensor x = start;
  for (int i = 0; i < 40; ++i) x = torch::matmul(x, start) * 1e-3;
  return x;
}

// Sample i is a picture of the number i.
class Numbers final : public Dataset {
 public:
  std::int64_t size() const override { return 1'000'000; }
  std::vector<std::int64_t> sample_shape() const override { return {3, 32, 32}; }
  std::int64_t classes() const override { return 10; }
  Batch get(std::span<const std::uint32_t> indices) const override {
    const auto count = static_cast<std::int64_t>(indices.size());
    Batch batch{torch::empty({count, 3, 32, 32}), torch::empty({count}, torch::kInt64)};
    for (std::int64_t i = 0; i < count; ++i) {
      batch.data[i].fill_(static_cast<double>(indices[static_cast<std::size_t>(i)]));
      batch.target[i].fill_(i);
    }
    return batch;
  }
};

// Memory of an earlier batch must not be given to a later one while the GPU has yet to read it.
TEST_F(Uploads, EveryBatchIsWhatItShouldBeWhenTheGpuComesToIt) {
  test::on_workers(1, [](World&) {
    const torch::Tensor matrix = torch::randn({2048, 2048}, kGpu);
    Prefetcher prefetcher(std::make_shared<Numbers>(), Upload(kGpu, true));
    std::vector<torch::Tensor> sums;
    std::vector<std::uint32_t> indices(64, 0), next(64, 0);
    for (std::uint32_t step = 0; step < 30; ++step) {
      const Batch batch = prefetcher.take(indices);
      std::fill(next.begin(), next.end(), step + 1);
      prefetcher.request(next);
      EXPECT_TRUE(batch.data.is_cuda());
      EXPECT_TRUE(batch.data.is_contiguous(at::MemoryFormat::ChannelsLast));
      busy(matrix);
      sums.push_back(batch.data.mean() + batch.target.sum() * 0);
      indices = next;
    }
    for (std::size_t step = 0; step < sums.size(); ++step)
      EXPECT_EQ(sums[step].item<double>(), static_cast<double>(step));
  });
}

TEST_F(Uploads, ANumberIsReadWithoutWaitingForWhatCameLater) {
  test::on_workers(1, [](World&) {
    const torch::Tensor matrix = torch::randn({4096, 4096}, kGpu);
    busy(matrix);
    finish_stream(kGpu);
    const LateNumber late((torch::ones({100}, kGpu) * 3).sum());
    for (int i = 0; i < 10; ++i) busy(matrix);
    EXPECT_EQ(late.value(), 300);
    EXPECT_FALSE(current_stream(kGpu).query()) << "it has waited for everything";
    finish_stream(kGpu);
    EXPECT_TRUE(current_stream(kGpu).query());
  });
}

TEST_F(Uploads, AutocastAndGeneratorsAreTheGpus) {
  test::on_workers(1, [](World&) {
    const torch::Tensor matrix = torch::randn({8, 8}, kGpu);
    {
      const Autocast half(torch::kCUDA, Precision::bf16);
      EXPECT_EQ(torch::matmul(matrix, matrix).scalar_type(), torch::kBFloat16);
    }
    EXPECT_EQ(torch::matmul(matrix, matrix).scalar_type(), torch::kFloat32);
    at::Generator generator = generator_of(kGpu);
    const torch::Tensor state = generator.get_state();
    const torch::Tensor one = torch::rand({4}, kGpu);
    generator.set_state(state);
    EXPECT_TRUE(torch::equal(one, torch::rand({4}, kGpu)));
  });
}

TEST_F(Uploads, AJobComputesWhereItSays) {
  test::on_workers(1, [](World&) {
    TrainOptions options;
    options.device = "cuda";
    options.precision = "bf16";
    Compute compute(options, 0);
    EXPECT_EQ(compute.device(), kGpu);
    const auto model = make_model("cnn", {3, 32, 32}, 10, {});
    compute.take(*model);
    EXPECT_TRUE(compute.channels_last());
    for (const auto& each : model->parameters()) EXPECT_TRUE(each.is_cuda());
    EXPECT_GT(compute.memory_in_use(), 0);
  });
}

}  // namespace
}  // namespace skein
