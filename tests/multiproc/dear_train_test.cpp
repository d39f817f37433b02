// `skein train --strategy dear`: checkpoints hold the whole of a state that no worker has whole.
#include <cmath>
#include <sstream>

#include "multiproc/model_file.h"
#include "multiproc/paths.h"
#include "multiproc/process.h"

namespace skein::testing {
namespace {

using namespace std::chrono_literals;
using Words = std::vector<std::string>;

// 12 steps of 32 samples, a checkpoint after 6; buckets of one tensor or two.
class DearTrain : public ::testing::Test {
 protected:
  void train(const std::string& name, const std::string& strategy, int workers, Words more = {}) {
    Words argv{kSkein, "train", "--strategy", strategy, "--out", folder / name};
    std::istringstream job(
        "--quiet --model mlp --set model.width=96 --set data.train=384 --set data.test=40 "
        "--set strategy.fusion=64KB --samples 384 --checkpoint-every 192 --optimizer adamw "
        "--lr 0.0001 --weight-decay 0.1 --no-decay-1d --groups *.weight:factor=0.5 --clip 0.5 "
        "--schedule cosine:warmup=64 "
        "--workers " +
        std::to_string(workers) + " --batch " + std::to_string(32 / workers));
    for (std::string word; job >> word;) argv.push_back(word);
    argv.insert(argv.end(), more.begin(), more.end());
    const Finished end = Process(argv).wait();
    ASSERT_EQ(end.code, 0) << end.err;
  }

  void expect_same_file(const std::string& one, const std::string& two) const {
    const std::string a = contents(folder / one), b = contents(folder / two);
    EXPECT_FALSE(a.empty()) << one;
    EXPECT_EQ(a.size(), b.size()) << one << " and " << two;
    EXPECT_TRUE(a == b) << one << " and " << two << " differ";
  }

  // The distance of all tensors of two files over the length of those of one.
  double difference(const std::string& one, const std::string& two) const {
    const auto a = flat(read_model(folder / one)), b = flat(read_model(folder / two));
    EXPECT_FALSE(a.empty());
    EXPECT_EQ(a.size(), b.size());
    double gap = 0, length = 0;
    for (std::size_t i = 0; i < a.size(); ++i) {
      const double x = a[i], y = b.at(i);
      gap += (x - y) * (x - y);
      length += x * x;
    }
    return std::sqrt(gap / length);
  }

  const Folder folder;
};

TEST_F(DearTrain, SavesWhatAllReduceSavesAndResumesOnAnyNumberOfWorkers) {
  train("whole", "dear", 4, {"--verify"});
  train("allreduce", "allreduce", 4);
  for (const std::string file :
       {"checkpoints/192/model.safetensors", "checkpoints/192/optimizer.safetensors",
        "checkpoints/384/optimizer.safetensors", "model.safetensors"})
    expect_same_file("whole/" + file, "allreduce/" + file);

  const Words from_middle{"--resume", folder / "whole/checkpoints/192"};
  train("on4", "dear", 4, from_middle);
  for (const std::string file : {"checkpoints/384/optimizer.safetensors", "model.safetensors"})
    expect_same_file("whole/" + file, "on4/" + file);
  for (const int workers : {2, 8}) {
    const std::string name = "on" + std::to_string(workers);
    train(name, "dear", workers, from_middle);
    // The same samples in another order of summation.
    EXPECT_LE(difference("whole/model.safetensors", name + "/model.safetensors"), 1e-7) << name;
    EXPECT_LE(difference("whole/checkpoints/384/optimizer.safetensors",
                         name + "/checkpoints/384/optimizer.safetensors"),
              2e-6)
        << name;
  }
}

// The file holds exact parameters, whoever had which of them.
TEST_F(DearTrain, HalfPrecisionResumesOnAnyNumberOfWorkers) {
  train("float32", "dear", 4);
  train("half", "dear", 4, {"--wire", "bf16", "--verify"});
  const Words from_middle{"--wire", "bf16", "--resume", folder / "half/checkpoints/192"};
  train("on4", "dear", 4, from_middle);
  for (const std::string file : {"checkpoints/384/optimizer.safetensors", "model.safetensors"})
    expect_same_file("half/" + file, "on4/" + file);
  train("on2", "dear", 2, from_middle);
  for (const std::string other : {"on2", "float32"}) {
    const double apart = difference("half/model.safetensors", other + "/model.safetensors");
    EXPECT_LE(apart, 1.0 / 256) << other;  // by as much as the weights of a forward are off
    EXPECT_GE(apart, 1e-8) << other << ": nothing was rounded";
  }
}

}  // namespace
}  // namespace skein::testing
