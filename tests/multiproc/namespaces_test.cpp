// Workers on hosts of their own: network namespaces with links between them, where the system
// permits that.
#include <numeric>

#include "launch/meeting_place.h"
#include "multiproc/paths.h"
#include "multiproc/train_command.h"
#include "runtime/fabrics.h"

namespace skein::testing {
namespace {

using namespace std::chrono_literals;

std::string why_no_namespaces() {
  const auto names = fabric_names();
  if (std::find(names.begin(), names.end(), "tcp") == names.end())
    return "no tcp fabric in this build";
  if (::geteuid() != 0) return "network namespaces need root";
  const Finished end =
      Process(
          {"sh", "-c", "ip netns add skein-try-$$ && ip netns del skein-try-$$ && command -v tc"},
          {{"PATH", "/usr/sbin:/usr/bin:/sbin:/bin"}})
          .wait();
  return end.code == 0 ? "" : "no network namespaces here: " + end.err;
}

std::string command_line(const Words& words) {
  std::string out;
  for (const std::string& word : words) out += word + " ";
  return out;
}

class Namespaces : public ::testing::Test {
 protected:
  void SetUp() override {
    const std::string reason = why_no_namespaces();
    if (!reason.empty()) GTEST_SKIP() << reason;
    std::ofstream(folder_ / "secret") << "what the workers of this test know";
    std::filesystem::permissions(folder_ / "secret", std::filesystem::perms::owner_read);
  }

  // A training of so many workers on each of some hosts.
  Finished train(const std::string& hosts, const std::string& workers, const std::string& rate,
                 const Words& options, const std::string& during = "") {
    const Words command{
        std::string(kSource) + "/tests/hosts/on_hosts.sh", hosts, workers, rate, "--", "sh", "-c",
        // A shell, so that options may depend on the rank.
        command_line({kSkein, "train", "--fabric", "tcp", "--secret", folder_ / "secret", "--quiet",
                      "--set", "data.train=640", "--set", "data.test=40"}) +
            command_line(options)};
    return Process(command, {{"PATH", "/usr/sbin:/usr/bin:/sbin:/bin"},
                             {"BYTES", folder_ / "bytes"},
                             {"DURING", during}})
        .wait();
  }

  // What all hosts have sent.
  double bytes() const {
    std::ifstream in(folder_ / "bytes");
    return std::accumulate(std::istream_iterator<double>(in), {}, 0.0);
  }

  const Folder folder_;
};

TEST_F(Namespaces, WorkersThatShareAHostSendThroughTheNetworkOnceForAll) {
  std::map<std::string, double> sent;
  std::map<std::string, std::map<std::string, std::string>> models;
  for (const std::string levels : {"one", "auto"})
    for (const std::string strategy : {"allreduce", "dear"}) {
      const std::string out = folder_ / (levels + strategy);
      const Finished end =
          train("2", "2", "none",
                {"--strategy", strategy, "--levels", levels, "--samples", "320", "--out", out});
      ASSERT_EQ(end.code, 0) << end.err;
      sent[levels] = bytes();
      models[levels][strategy] = contents(out + "/model.safetensors");
      EXPECT_GT(models[levels][strategy].size(), 1000u);
    }
  for (const auto& [levels, of] : models)
    EXPECT_TRUE(of.at("allreduce") == of.at("dear")) << "with --levels " << levels;
  EXPECT_FALSE(models["one"] == models["auto"]) << "the levels have another order of sums";
  // A ring of four sends 3/4 of the model from each host and each way, two hosts 1/2.
  EXPECT_LT(sent["auto"], 0.75 * sent["one"]);
  EXPECT_GT(sent["auto"], 0.6 * sent["one"]);
}

TEST_F(Namespaces, AShortBreakOfTheNetworkChangesNothing) {
  std::vector<std::string> models;
  for (const bool breaks : {false, true}) {
    const std::string out = folder_ / ("out" + std::to_string(models.size()));
    // When the workers train, unless the test is over.
    const std::string during =
        "while [ -d " + folder_.path() + " ] && ! grep -qs '\"kind\":\"step\"' " + out +
        "/metrics.jsonl; do sleep 0.05; done; host=${NAMESPACES%% *}; "
        "ip -n $host link set eth0 down; touch $BYTES.down; sleep 1; ip -n $host link set eth0 up";
    const Finished end = train("2", "1", "none",
                               {"--strategy", "dear", "--samples", "6400", "--batch", "16",
                                "--emulate-step", "30ms", "--out", out},
                               breaks ? during : "");
    ASSERT_EQ(end.code, 0) << end.err;
    models.push_back(contents(out + "/model.safetensors"));
  }
  EXPECT_TRUE(std::filesystem::exists(folder_ / "bytes.down")) << "nothing went wrong";
  EXPECT_GT(models.front().size(), 1000u);
  EXPECT_TRUE(models.front() == models.back());
}

// fe80::/10 means nothing without an interface. Ranks 1 and 2 learn each other's from rank 0.
TEST_F(Namespaces, WorkersMeetAtLinkLocalAddresses) {
  if (!std::filesystem::exists("/proc/net/if_inet6")) GTEST_SKIP() << "no IPv6 here";
  const std::string out = folder_ / "out";
  const Finished end = train("3", "1", "none",
                             {"--rendezvous", "'[fe80::1%eth0]:29778'", "--strategy", "dear",
                              "--samples", "320", "--out", out});
  ASSERT_EQ(end.code, 0) << end.err;
  EXPECT_GT(contents(out + "/model.safetensors").size(), 1000u);
}

TEST_F(Namespaces, UnequalChoicesAreRefused) {
  const Finished end =
      train("2", "1", "none",
            {"--samples", "64", "--levels", "$(echo one auto | cut -d ' ' -f $((RANK + 1)))"});
  EXPECT_EQ(end.code, 2);
  EXPECT_EQ(count(end.err, "--levels one on rank 0, auto on rank 1"), 2) << end.err;
}

}  // namespace
}  // namespace skein::testing
