// Which device a worker takes, without any.
#include "train/gpus.h"

#include <gtest/gtest.h>

#include "data/upload.h"
#include "skein/error.h"
#include "torch/late_number.h"

namespace skein::gpus_test {
namespace {

Gpus host_with(int count) {
  Gpus gpus;
  gpus.count = count;
  if (count == 0) gpus.why_none = "there is no driver";
  return gpus;
}

int gpu(const std::string& device, int gpus, int local_rank) {
  return gpu_of_worker(parse_device(device), host_with(gpus), local_rank);
}

TEST(Gpus, WorkersOfAHostTakeThemInTurn) {
  for (const char* device : {"auto", "cuda"}) {
    EXPECT_EQ(gpu(device, 2, 0), 0);
    EXPECT_EQ(gpu(device, 2, 1), 1);
    EXPECT_EQ(gpu(device, 2, 2), 0);
    EXPECT_EQ(gpu(device, 1, 3), 0);
  }
  EXPECT_EQ(gpu("cuda:1", 2, 0), 1);
  EXPECT_EQ(gpu("cpu", 2, 1), -1);
}

std::string refusal(const std::string& device, int gpus) {
  try {
    gpu(device, gpus, 0);
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "";
}

TEST(Gpus, WhereThereIsNoneAutoIsTheCpuAndCudaAnErrorThatSaysWhy) {
  EXPECT_EQ(gpu("auto", 0, 3), -1);
  EXPECT_EQ(refusal("cuda", 0), "--device cuda: there is no GPU to use: there is no driver");
  EXPECT_EQ(refusal("cuda:1", 0), "--device cuda:1: there is no GPU to use: there is no driver");
  EXPECT_EQ(refusal("cuda:1", 1), "--device cuda:1: this host has one GPU; expected cuda:0");
  EXPECT_EQ(refusal("cuda:4", 2),
            "--device cuda:4: this host has 2 GPUs; expected cuda:0 to cuda:1");
}

TEST(Gpus, DevicesAreSpelledOneWay) {
  for (const char* text : {"", "gpu", "cuda:", "cuda:-1", "cuda:1x", "CPU"})
    EXPECT_THROW(parse_device(text), ConfigError) << text;
}

TEST(Gpus, AChildFindsWhatThisProcessWould) {
  const Gpus child = count_gpus_in_a_child(), own = find_gpus();
  EXPECT_EQ(child.count, own.count);
  EXPECT_EQ(std::ssize(own.devices), own.count);
  EXPECT_EQ(child.why_none, own.why_none);
  EXPECT_EQ(child.in_torch, own.in_torch);
  EXPECT_EQ(own.devices.empty(), !own.why_none.empty());
}

TEST(Upload, OnTheHostABatchIsWhereItShouldBe) {
  const Batch batch{torch::ones({2, 3, 4, 4}), torch::zeros({2}, torch::kInt64)};
  const Upload upload;
  const Batch there = upload.finish(upload.start(batch));
  EXPECT_EQ(there.data.data_ptr(), batch.data.data_ptr());
  const Batch last = Upload(torch::kCPU, true).bring(batch);
  EXPECT_TRUE(last.data.is_contiguous(at::MemoryFormat::ChannelsLast));
  EXPECT_TRUE(torch::equal(last.data, batch.data));
}

TEST(LateNumber, OnTheHostIsThereAtOnce) {
  EXPECT_EQ(LateNumber(2.5).value(), 2.5);
  torch::Tensor number = torch::full({}, 0.25);
  const LateNumber late(number);
  number.fill_(7);
  EXPECT_EQ(late.value(), 0.25);
}

}  // namespace
}  // namespace skein::gpus_test
