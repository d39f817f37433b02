// `skein train --fabric tcp`: started by itself, and one by one with torchrun's variables.
#include <sys/stat.h>

#include <sstream>

#include "launch/meeting_place.h"
#include "multiproc/paths.h"
#include "multiproc/process.h"
#include "runtime/fabrics.h"

namespace skein::testing {
namespace {

using namespace std::chrono_literals;
using Words = std::vector<std::string>;

Words train(const std::string& options) {
  Words argv{kSkein, "train"};
  std::istringstream all(
      "--model mlp --set model.width=64 --set data.train=320 --set data.test=40 " + options);
  for (std::string word; all >> word;) argv.push_back(word);
  return argv;
}

class TcpTrain : public ::testing::Test {
 protected:
  void SetUp() override {
    const auto names = fabric_names();
    if (std::find(names.begin(), names.end(), "tcp") == names.end())
      GTEST_SKIP() << "no tcp fabric in this build";
    std::ofstream(folder_ / "secret") << "a secret of the tests, of 40 letters....";
    chmod((folder_ / "secret").c_str(), 0600);
  }

  // What torchrun would set.
  Process::Environment worker(int rank, int size) const {
    const std::string address = place_.rendezvous();
    return {{"RANK", std::to_string(rank)},
            {"WORLD_SIZE", std::to_string(size)},
            {"LOCAL_RANK", std::to_string(rank)},
            {"MASTER_ADDR", address.substr(0, address.find(':'))},
            {"MASTER_PORT", address.substr(address.find(':') + 1)}};
  }
  std::string secret() const { return " --secret " + folder_ / "secret"; }

  const Folder folder_;
  const MeetingPlace place_;
};

TEST_F(TcpTrain, HasTheBitsOfARunOnSharedMemory) {
  const std::string job =
      "--quiet --workers 3 --strategy dear --set strategy.fusion=32KB --samples 192 --out ";
  const std::map<std::string, std::string> runs{
      {"local", ""}, {"tcp", " --fabric tcp"}, {"clear", " --fabric tcp --encrypt off"}};
  for (const auto& [name, options] : runs) {
    const Finished end = Process(train(job + folder_ / name + options)).wait();
    ASSERT_EQ(end.code, 0) << name << ": " << end.err;
  }
  const std::string model = contents(folder_ / "local/model.safetensors");
  EXPECT_GT(model.size(), 1000u);
  EXPECT_TRUE(contents(folder_ / "tcp/model.safetensors") == model);
  EXPECT_TRUE(contents(folder_ / "clear/model.safetensors") == model);
}

TEST_F(TcpTrain, RefusesOptionsThatDoNotFit) {
  const auto refusal = [&](const std::string& options) {
    const Finished end = Process(train(options), worker(0, 2)).wait();
    EXPECT_EQ(end.code, 2) << options;
    return end.err;
  };
  EXPECT_EQ(count(refusal("--fabric tcp"), "--secret FILE"), 1);
  EXPECT_EQ(count(refusal("--fabric tcp --rendezvous here" + secret()), "expected HOST:PORT"), 1);
  EXPECT_EQ(count(refusal("--secret x"), "--fabric local does not use it; expected --fabric tcp"),
            1);
  EXPECT_EQ(count(refusal("--fabric tcp --encrypt maybe"), "--encrypt maybe: expected on, off"), 1);
  EXPECT_EQ(count(refusal("--fabric tcp --emulate-link 1gbit" + secret()), "no --emulate-link"), 1);
  chmod((folder_ / "secret").c_str(), 0644);
  EXPECT_EQ(count(refusal("--fabric tcp" + secret()), "chmod 600"), 1);
}

// Of two workers that train for long, the second gets `signal`; how the first ends.
class TcpTrainLoses : public TcpTrain {
 protected:
  Finished lose_the_second(int signal, const std::string& options) {
    const std::string job = "--fabric tcp --samples 100000000 --log-every 1" + secret() + options;
    Process first(train(job), worker(0, 2)), second(train(job), worker(1, 2));
    EXPECT_TRUE(eventually([&] { return count(first.err(), "\n") > 10; }));
    kill(second.pid(), signal);
    return first.wait();
  }
};

TEST_F(TcpTrainLoses, AWorkerThatIsKilledAtOnce) {
  const Finished end = lose_the_second(SIGKILL, " --deadline 10000s");
  EXPECT_EQ(end.code, 1);
  EXPECT_EQ(count(end.err, "rank 1, which was lost"), 1) << end.err;
}

// Its heartbeats stay away for as long: whichever is noticed first is said.
TEST_F(TcpTrainLoses, AWorkerThatIsStoppedAfterTheDeadline) {
  const Finished end = lose_the_second(SIGSTOP, " --deadline 10s");
  EXPECT_EQ(end.code, 1);
  EXPECT_EQ(count(end.err, "rank 1 has been silent for too long") +
                count(end.err, "rank 1, which was lost: nothing has come from it for "),
            1)
      << end.err;
}

}  // namespace
}  // namespace skein::testing
