// `skein profile` measures, shows and writes profiles. How fast anything is, is not tested.
#include <memory>
#include <nlohmann/json.hpp>

#include "multiproc/paths.h"
#include "multiproc/process.h"
#include "sim/profile.h"

namespace skein::testing {
namespace {

std::vector<std::string> with_profile(std::vector<std::string> words) {
  words.insert(words.begin(), {kSkein, "profile"});
  return words;
}

Finished profile(const std::vector<std::string>& words) { return run(with_profile(words)); }

TEST(ProfileCommand, MeasuresAndWritesWhatCanBeReadBack) {
  const Folder folder;
  const auto end = profile(
      {"--model",      "mlp",     "--set", "model.width=8",   "--set",  "data.train=50",  "--set",
       "data.test=10", "--batch", "4",     "--workers",       "2",      "--iterations",   "3",
       "--warmup",     "1",       "--out", folder / "p.json", "--json", folder / "j.json"});
  ASSERT_EQ(end.code, 0) << end.err;
  for (const char* part : {"mlp, batch 4\n", "measured: mlp width=8 on glyphs, batch 4, 2 workers",
                           "\nforward ", "\nbackward ", "\nupdate ", "layers.0.weight", " tensors"})
    EXPECT_EQ(count(end.out, part), 1) << part << end.out;
  EXPECT_EQ(count(end.out, "written to " + (folder / "p.json")), 1) << end.out;

  const sim::Profile written = sim::read_profile(folder / "p.json");
  EXPECT_EQ(written.batch, 4);
  EXPECT_EQ(written.layers.back().name, "layers.4.bias");
  EXPECT_GT(written.forward().count(), 0);
  EXPECT_GT(written.backward().count(), 0);
  EXPECT_GT(written.update.count(), 0);

  const auto json = nlohmann::json::parse(contents(folder / "j.json"));
  EXPECT_EQ(json.at("command"), "profile");
  EXPECT_EQ(json.at("batch"), 4);
  EXPECT_EQ(json.at("parameters"), written.parameters());
  EXPECT_EQ(json.at("tensors"), written.tensors());
  EXPECT_EQ(json.at("layers").size(), written.layers.size());
  EXPECT_NEAR(json.at("forward_ms"), milliseconds(written.forward()), 1e-9);
  EXPECT_NEAR(json.at("backward_ms"), milliseconds(written.backward()), 1e-9);
  EXPECT_NEAR(json.at("update_ms"), milliseconds(written.update), 1e-9);
  for (const char* key : {"name", "parameters", "forward_ms", "backward_ms"})
    EXPECT_TRUE(json.at("layers").at(0).contains(key)) << key;
}

TEST(ProfileCommand, ShowsABuiltInOne) {
  const Folder folder;
  const auto end = profile({"--builtin", "resnet50", "--out", folder / "p.json", "--quiet"});
  ASSERT_EQ(end.code, 0) << end.err;
  const sim::Profile builtin = sim::find_profile("resnet50");
  const sim::Profile written = sim::read_profile(folder / "p.json");
  EXPECT_EQ(written.parameters(), builtin.parameters());
  EXPECT_EQ(written.layers.size(), builtin.layers.size());
  EXPECT_EQ(written.forward(), builtin.forward());
  EXPECT_EQ(count(end.out, std::to_string(builtin.parameters())), 1) << end.out;
  EXPECT_EQ(count(end.out, " %\n"), 10) << end.out;
  EXPECT_EQ(count(end.out, "written to"), 0) << end.out;
}

TEST(ProfileCommand, HelpHasAnExample) {
  const auto help = profile({"--help"});
  EXPECT_EQ(help.code, 0);
  for (const char* part :
       {"--json FILE", "--seed", "--builtin resnet50|", "Example: skein profile "})
    EXPECT_EQ(count(help.out, part), 1) << part;
}

TEST(ProfileCommand, RefusesWhatCannotBe) {
  // Words, and what the one line must hold besides the command's name.
  const std::vector<std::pair<std::vector<std::string>, std::string>> table{
      {{"--iterations", "0"}, "--iterations 0: expected a whole number from 1 to "},
      {{"--set", "modle.width=3"}, "--set modle.width=3: there is no part 'modle'"},
      {{"--out", "/dev/null/p.json"}, "--out /dev/null/p.json: cannot make the folder"},
      {{"--json", "/tmp"}, "--json /tmp: this is a folder"},
      {{"--builtin", "resnet51"}, "--builtin resnet51: expected "},
      {{"--builtin", "resnet50", "--batch", "3"}, "--batch: --builtin resnet50 measures nothing"},
      {{"--model", "nlp"}, "unknown model 'nlp': expected one of mlp"},
      {{"--bacth", "3"}, "unknown option '--bacth'; did you mean '--batch'?"}};
  // All at once: torch takes its time to load.
  std::vector<std::unique_ptr<Process>> started;
  for (const auto& row : table)
    started.push_back(std::make_unique<Process>(with_profile(row.first)));
  for (std::size_t i = 0; i < table.size(); ++i) {
    const auto end = started[i]->wait();
    EXPECT_EQ(end.code, 2) << table[i].second;
    EXPECT_EQ(count(end.err, "\n"), 1) << end.err;
    EXPECT_EQ(end.err.rfind("skein profile: ", 0), 0u) << end.err;
    EXPECT_EQ(count(end.err, table[i].second), 1) << end.err;
  }
}

}  // namespace
}  // namespace skein::testing
