// `skein advise` as a person runs it: answers, files, commands that can be typed, and what it
// refuses.
#include <sys/stat.h>

#include <nlohmann/json.hpp>

#include "multiproc/paths.h"
#include "multiproc/process.h"
#include "runtime/fabrics.h"

namespace skein::testing {
namespace {

using Json = nlohmann::json;
using Words = std::vector<std::string>;

Words advise_words(const Words& more) {
  Words words{kSkein, "advise"};
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

Json advice(Words more, Finished* end_of = nullptr) {
  const Folder folder;
  more.insert(more.end(), {"--quiet", "--json", folder / "a.json"});
  const Finished end = Process(advise_words(more)).wait();
  EXPECT_EQ(end.code, 0) << end.out << end.err;
  if (end_of != nullptr) *end_of = end;
  return Json::parse(contents(folder / "a.json"));
}

// The words of a command that has no quotes in it.
Words split(const std::string& command) {
  Words words;
  std::istringstream in(command);
  for (std::string word; in >> word;) words.push_back(word);
  return words;
}

const Words kSlow{"--profile", "resnet50",         "--workers", "4",       "--network",
                  "1gbe",      "--emulate-speeds", "1,1,2,4",   "--steps", "16"};

TEST(Advise, NamesAStrategyItsReasonItsCommandAndAllCandidates) {
  Finished end;
  const Json json = advice(kSlow, &end);
  const Json& recommended = json.at("recommended");
  EXPECT_EQ(recommended.at("strategy"), "lasgd");
  EXPECT_EQ(recommended.at("command").get<std::string>().find(
                "skein train --workers 4 --model resnet50 --batch 64 --strategy lasgd"),
            0u)
      << recommended.at("command");
  EXPECT_NE(end.out.find(recommended.at("command").get<std::string>()), std::string::npos);
  // It parses: what is wrong with it then is only what was added.
  Words words = split(recommended.at("command"));
  words.front() = kSkein;
  words.insert(words.end(), {"--emulate-speeds", "1,1,1"});
  EXPECT_EQ(count(run(words).err, "3 speeds, 4 workers"), 1);
  EXPECT_NE(end.out.find(recommended.at("reason").get<std::string>()), std::string::npos);
  EXPECT_NE(end.out.find("Throughput is not accuracy"), std::string::npos);
  EXPECT_GE(json.at("candidates").size(), 9u);
  for (const Json& each : json.at("candidates")) {
    EXPECT_GT(each.at("samples_per_second"), 0) << each;
    EXPECT_GT(each.at("iteration_ms"), 0) << each;
    EXPECT_GT(each.at("bytes_per_step"), 0) << each;
    EXPECT_LE(each.at("utilisation"), 1.001) << each;
  }
  EXPECT_GT(json.at("tried").size(), json.at("candidates").size());
  EXPECT_NE(json.at("runner_up").at("strategy"), "lasgd");
  EXPECT_FALSE(json.at("changes").at("sentences").empty());
}

TEST(Advise, ReadsTheClusterFromAFileAndRepeatsEveryFigure) {
  const Folder folder;
  std::ofstream(folder / "cluster.toml")
      << "profile = \"resnet50\"\nworkers = 4\nnetwork = \"1gbe\"\nemulate-speeds = [1, 1, 2, 4]\n"
         "steps = 16\n";
  Json typed = advice(kSlow), read = advice({"--config", folder / "cluster.toml"});
  for (Json* each : {&typed, &read}) each->erase("config");
  EXPECT_EQ(typed, read);
}

TEST(Advise, MeasuresAModelAndItsCommandsTrainOnTheEmulatedCluster) {
  const Folder folder;
  const Json json = advice({"--model", "mlp", "--set", "model.width=16", "--batch", "4",
                            "--workers", "2", "--quick", "--emulate-step", "4ms", "--emulate-link",
                            "10mbit", "--save-profile", folder / "p.json"});
  EXPECT_EQ(json.at("model").at("batch"), 4);
  EXPECT_TRUE(std::filesystem::exists(folder / "p.json"));
  Words words = split(json.at("recommended").at("command"));
  ASSERT_GE(words.size(), 2u);
  words.front() = kSkein;
  words.insert(words.end(), {"--samples", "32", "--set", "data.train=64", "--set", "data.test=32",
                             "--quiet", "--json", folder / "train.json"});
  const Finished end = run(words);
  EXPECT_EQ(end.code, 0) << end.err;
  const Json trained = Json::parse(contents(folder / "train.json"));
  EXPECT_EQ(trained.at("strategy"), json.at("recommended").at("strategy"));
  EXPECT_EQ(trained.at("config").at("emulate-link"), "10mbit");
}

// A name that others can guess, in a folder that all may write, could be another's link.
TEST(Advise, LeavesNothingInTheTemporaryFolderAndWritesThroughNoLinkOfOthers) {
  const Folder folder;
  std::filesystem::create_directory(folder / "tmp");
  Process process(advise_words({"--model", "mlp", "--set", "model.width=16", "--batch", "4",
                                "--workers", "2", "--quick", "--steps", "8", "--quiet"}),
                  {{"TMPDIR", folder / "tmp"}});
  const std::string guessed = folder / "tmp/skein-advise-" + std::to_string(process.pid());
  std::filesystem::create_symlink(folder / "victim", guessed + ".json");
  const Finished end = process.wait();
  EXPECT_EQ(end.code, 0) << end.err;
  EXPECT_FALSE(std::filesystem::exists(folder / "victim"));
  EXPECT_TRUE(std::filesystem::is_symlink(guessed + ".json"));
  std::filesystem::remove(guessed + ".json");
  EXPECT_TRUE(std::filesystem::is_empty(folder / "tmp"));
}

TEST(Advise, DrawsAMap) {
  const Folder folder;
  Finished end;
  const Json json = advice({"--profile", "resnet50", "--workers", "2", "--network", "10gbe",
                            "--quick", "--steps", "8", "--map", folder / "maps/map.svg"},
                           &end);
  const std::string svg = contents(folder / "maps/map.svg");
  EXPECT_EQ(count(svg, "class=\"cell\""), static_cast<int>(json.at("map").size()));
  EXPECT_GE(json.at("map").size(), 30u);
  EXPECT_EQ(svg.find("<script"), std::string::npos);
  EXPECT_NE(svg.find("prefers-color-scheme: dark"), std::string::npos);
  EXPECT_NE(end.out.find("fastest/slowest"), std::string::npos);
}

TEST(Advise, RefusesWhatMakesNoSense) {
  const auto refused = [](const Words& words, const std::string& what) {
    const Finished end = run(advise_words(words));
    EXPECT_EQ(end.code, 2) << end.out << end.err;
    EXPECT_EQ(count(end.err, what), 1) << end.err;
    EXPECT_EQ(count(end.err, "\n"), 1) << end.err;
  };
  refused({}, "which model? expected --profile");
  refused({"--profile", "resnet51"}, "no profile 'resnet51'");
  refused({"--profile", "resnet50", "--workers", "1"}, "--workers 1: one worker");
  refused({"--profile", "resnet50", "--model", "mlp"}, "--model: --profile resnet50");
  refused({"--profile", "resnet50", "--network", "2gbe"}, "--network 2gbe");
  refused({"--profile", "resnet50", "--workers", "4", "--emulate-speeds", "1,2,3"},
          "--emulate-speeds 1,2,3");
  refused({"--profile", "resnet50", "--network", "1gbe", "--emulate-link", "1gbit"},
          "expected one of the two");
  refused({"--profile", "resnet50", "--hosts", "a,b", "--workers", "2"}, "--workers: --hosts");
  refused({"--profile", "resnet50", "--hosts", "a"}, "at least 2 workers");
  refused({"--profile", "resnet50", "--ssh", "ssh"}, "--ssh: there are no hosts");
  refused({"--profile", "resnet50", "--map", "/proc/no/map.svg"}, "--map /proc/no/map.svg");
  refused({"--model", "mlp", "--workers", "x"}, "--workers x");
  refused({"--profile", "resnet50", "--netwrok", "1gbe"}, "did you mean");
}

TEST(Advise, MeasuresHostsAndTheLinkBetweenThem) {
  const auto names = fabric_names();
  if (std::find(names.begin(), names.end(), "tcp") == names.end())
    GTEST_SKIP() << "no tcp fabric in this build";
  const Folder folder;
  std::ofstream(folder / "ssh") << "#!/bin/sh\nshift; exec sh -c \"$*\"\n";
  chmod((folder / "ssh").c_str(), 0700);
  Finished end;
  const Json json = advice({"--hosts", "127.0.0.1,127.0.0.2,127.0.0.3", "--ssh", folder / "ssh",
                            "--model", "mlp", "--set", "model.width=16", "--set", "data.train=64",
                            "--set", "data.test=32", "--batch", "4", "--quick", "--steps", "8"},
                           &end);
  const Json& cluster = json.at("cluster");
  EXPECT_TRUE(cluster.at("measured"));
  EXPECT_EQ(cluster.at("workers"), 3);
  EXPECT_GT(cluster.at("bytes_per_second"), 1e6);
  EXPECT_GT(cluster.at("latency_ms"), 0);
  ASSERT_EQ(cluster.at("speeds").size(), 3u);
  EXPECT_EQ(cluster.at("speeds")[0], 1.0);
  // Every two of them, once.
  ASSERT_EQ(cluster.at("links").size(), 3u);
  const Json pairs{{1, 2}, {1, 3}, {2, 3}};
  for (std::size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(cluster.at("links")[i].at("hosts"), pairs[i]);
    EXPECT_GT(cluster.at("links")[i].at("bytes_per_second"), 1e5);
  }
  EXPECT_NE(json.at("recommended")
                .at("command")
                .get<std::string>()
                .find("--hosts 127.0.0.1,127.0.0.2,127.0.0.3"),
            std::string::npos);
}

}  // namespace
}  // namespace skein::testing
