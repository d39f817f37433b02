// `skein topology`: what it prints, writes and refuses.
#include <sys/stat.h>

#include <nlohmann/json.hpp>

#include "multiproc/paths.h"
#include "multiproc/process.h"

namespace skein::testing {
namespace {

Finished topology(std::vector<std::string> words) {
  words.insert(words.begin(), {kSkein, "topology"});
  return run(words);
}

std::string refusal(const std::vector<std::string>& words) {
  const auto end = topology(words);
  EXPECT_EQ(end.code, 2) << end.err;
  const std::string prefix = "skein topology: ";
  EXPECT_EQ(end.err.rfind(prefix, 0), 0u) << end.err;
  return end.err.substr(std::min(prefix.size(), end.err.size()));
}

TEST(TopologyCommand, WritesTheConstantsOfTheRing) {
  const Folder folder;
  const auto end = topology(
      {"--kind", "ring", "--workers", "64", "--rate", "1", "--json", folder / "ring.json"});
  ASSERT_EQ(end.code, 0) << end.err;
  for (const char* part : {"ring, 64 workers", "207.673", "0.984375", "0.0349704", "7.26238",
                           "28.6 gradients' time", "415.3 without", "14.5 times as fast"})
    EXPECT_EQ(count(end.out, part), 1) << part << end.out;
  const auto json = nlohmann::json::parse(contents(folder / "ring.json"));
  EXPECT_EQ(json.at("command"), "topology");
  EXPECT_EQ(json.at("kind"), "ring");
  EXPECT_EQ(json.at("workers"), 64);
  EXPECT_EQ(json.at("rate"), 1);
  EXPECT_NEAR(json.at("chi1"), 207.67253, 1e-4 * 207);
  EXPECT_NEAR(json.at("chi2"), 0.98438, 1e-4);
  EXPECT_NEAR(json.at("eta"), 0.034970, 1e-4 * 0.034);
  EXPECT_EQ(json.at("alpha"), 0.5);
  EXPECT_NEAR(json.at("alpha_tilde"), 7.26238, 1e-4 * 7);
  EXPECT_EQ(json.at("edge_count"), 64);
  EXPECT_EQ(json.at("edges").size(), 64u);
  EXPECT_EQ(json.at("edges").at(1), nlohmann::json({0, 63}));
}

TEST(TopologyCommand, SaysWhenMomentumGainsNothing) {
  const auto end = topology({"--kind", "complete", "--workers", "16"});
  EXPECT_EQ(count(end.out, "gains nothing"), 1) << end.out << end.err;
  EXPECT_EQ(count(topology({"--workers", "1"}).out, "nobody to average with"), 1);
}

TEST(TopologyCommand, ReadsTheFileThatItWrites) {
  const Folder folder;
  const std::string file = folder / "edges.txt";
  const auto edges = [&](const std::string& kind, const std::string& seed) {
    const auto end = topology({"--kind", kind, "--workers", "12", "--seed", seed, "--edges", file,
                               "--json", folder / "t.json"});
    EXPECT_EQ(end.code, 0) << end.err;
    return nlohmann::json::parse(contents(folder / "t.json")).at("edges");
  };
  const auto drawn = edges("random-regular:3", "5");
  EXPECT_EQ(edges(file, "1"), drawn);
  EXPECT_NE(edges("random-regular:3", "6"), drawn) << "the seed decides";
}

TEST(TopologyCommand, WritesOneDocumentToStandardOutputAndTheRestToStandardError) {
  const Folder folder;
  for (const char* name : {"-", "/dev/stdout", "/dev/fd/1", "/proc/self/fd/1"}) {
    const auto end = topology({"--workers", "4", "--json", name, "--edges", folder / "e.txt"});
    ASSERT_EQ(end.code, 0) << end.err;
    EXPECT_EQ(nlohmann::json::parse(end.out).at("workers"), 4) << name << end.out;
    EXPECT_EQ(count(end.err, "ring, 4 workers"), 1) << name << end.err;
    EXPECT_EQ(count(end.err, "edges written to " + (folder / "e.txt")), 1) << end.err;
  }
  const auto edges = topology({"--workers", "3", "--edges", "-", "--json", folder / "t.json"});
  EXPECT_EQ(edges.code, 0) << edges.err;
  EXPECT_EQ(edges.out, "# ring, 3 workers\n0 1\n0 2\n1 2\n");
  EXPECT_EQ(count(edges.err, "written to"), 0) << edges.err;
  EXPECT_EQ(nlohmann::json::parse(contents(folder / "t.json")).at("config").at("edges"), "-");
  EXPECT_EQ(refusal({"--edges", "-", "--json", "/dev/stdout"}),
            "--edges - and --json /dev/stdout: standard output takes one document; expected a file "
            "for one of the two\n");
  EXPECT_FALSE(std::filesystem::exists("-"));
}

TEST(TopologyCommand, WritesThroughALinkToAPipe) {
  const Folder folder;
  ASSERT_EQ(mkfifo((folder / "pipe").c_str(), 0600), 0);
  std::filesystem::create_symlink("pipe", folder / "link");
  Process process({kSkein, "topology", "--workers", "4", "--json", folder / "link"});
  const auto json = nlohmann::json::parse(contents(folder / "pipe"));
  EXPECT_EQ(process.wait().code, 0);
  EXPECT_EQ(json.at("workers"), 4);
  EXPECT_TRUE(std::filesystem::is_fifo(folder / "pipe"));
  EXPECT_TRUE(std::filesystem::is_symlink(folder / "link"));
}

TEST(TopologyCommand, RefusesWhatCannotBe) {
  EXPECT_EQ(refusal({"--workers", "0"}), "--workers 0: expected a whole number from 1 to 100000\n");
  EXPECT_EQ(refusal({"--rate", "0"}), "--rate 0: expected a number from 1e-06 to 1000000\n");
  EXPECT_EQ(refusal({"--kind", "torus:3x3", "--workers", "8"}),
            "topology torus:3x3: 9 places, 8 workers; expected one each\n");
  EXPECT_EQ(count(refusal({"--kind", "rign"}), "there is no such graph or file"), 1);
  EXPECT_EQ(count(refusal({"--edges", "/dev/null/file"}), "cannot make the folder"), 1);
  const Folder folder;
  std::ofstream(folder / "e.txt") << "0 1\n2 3\n";
  EXPECT_EQ(refusal({"--kind", folder / "e.txt", "--workers", "4"}),
            "topology " + (folder / "e.txt") +
                ": the graph is not connected: rank 0 cannot reach rank 2\n");
}

}  // namespace
}  // namespace skein::testing
