// What the command line accepts, refuses and says, as far as nothing has to be trained for it.
#include <memory>
#include <nlohmann/json.hpp>

#include "multiproc/paths.h"
#include "multiproc/process.h"
#include "runtime/fabrics.h"

namespace skein::testing {
namespace {

Finished skein(std::vector<std::string> words, const Process::Environment& environment = {}) {
  words.insert(words.begin(), kSkein);
  return run(words, environment);
}

// The one line that refuses `words`, without "skein train: ".
std::string refusal(std::vector<std::string> words, const Process::Environment& environment = {}) {
  words.insert(words.begin(), "train");
  const auto end = skein(words, environment);
  EXPECT_EQ(end.code, 2) << end.err;
  EXPECT_EQ(count(end.err, "\n"), 1) << end.err;
  const std::string prefix = "skein train: ";
  EXPECT_EQ(end.err.rfind(prefix, 0), 0u) << end.err;
  return end.err.substr(std::min(prefix.size(), end.err.size()));
}

TEST(CommandLine, HelpAndVersion) {
  EXPECT_EQ(skein({"--version"}).out.rfind("skein ", 0), 0u);
  for (const char* command : {"train", "run", "topology", "checkpoints", "doctor"}) {
    const auto help = skein({command, "--help"});
    EXPECT_EQ(help.code, 0);
    for (const char* part : {"--json FILE", "--seed", "--quiet", "--config", "Example: skein "})
      EXPECT_EQ(count(help.out, part), 1) << command << part;
  }
}

// Without skein-torch beside it, and so without torch.
TEST(CommandLine, NeedsTorchOnlyForWorkersAndModels) {
  const Folder folder;
  const std::string alone = folder / "skein";
  std::filesystem::copy_file(kSkein, alone);
  for (std::vector<std::string> words : std::vector<std::vector<std::string>>{
           {"--help"},
           {"train", "--help"},
           {"topology", "--kind", "ring", "--workers", "4"},
           {"simulate", "--workers", "4", "--profile", "resnet50", "--network", "10gbe"},
           {"run", "-n", "2", "--", "/bin/true"}}) {
    words.insert(words.begin(), alone);
    const Finished end = run(words);
    EXPECT_EQ(end.code, 0) << words[1] << ": " << end.err;
  }
  const Finished refused = run({alone, "train", "--strategy", "dera"});
  EXPECT_EQ(refused.code, 2);
  EXPECT_NE(refused.err.find("dear"), std::string::npos) << refused.err;
  const Finished doctor = run({alone, "doctor"});
  EXPECT_EQ(doctor.code, 1);
  EXPECT_NE(doctor.err.find("skein-torch: No such file"), std::string::npos) << doctor.err;
}

TEST(CommandLine, KeepsItsArgumentsWhereItNeedsTorch) {
  const Finished end = skein({"doctor", "--json", "-", "--quiet", "--seed", "7"});
  EXPECT_EQ(end.code, 0) << end.err;
  const auto json = nlohmann::json::parse(end.out);
  EXPECT_EQ(json["seed"], 7);
  EXPECT_NE(json["torch"], "");
  EXPECT_EQ(json["strategy"]["dear"]["lockstep"], true);
}

TEST(CommandLine, UnknownCommand) {
  const auto end = skein({"trian"});
  EXPECT_EQ(end.code, 2);
  EXPECT_EQ(end.err.rfind("skein: unknown command 'trian': expected ", 0), 0u) << end.err;
  EXPECT_EQ(count(end.err, "; did you mean 'train'?\n"), 1) << end.err;
  EXPECT_EQ(skein({}).code, 2);
}

TEST(TrainOptions, SaysWhyThereIsNoNccl) {
  const auto end = skein({"train", "--fabric", "nccl", "--device", "cpu"});
  EXPECT_EQ(end.code, 2);
  EXPECT_EQ(end.err.rfind("skein train: --fabric nccl: ", 0), 0u) << end.err;
  EXPECT_EQ(count(end.err, "\n"), 1) << end.err;
  EXPECT_EQ(count(end.err, "looked for libnccl.so.2") + count(end.err, "built without CUDA") +
                count(end.err, "NCCL joins GPUs"),
            1)
      << end.err;
}

TEST(TrainOptions, RefusesImpossibleValues) {
  const std::vector<std::vector<std::string>> table{
      {"--workers", "0"},         {"--samples", "-5"},
      {"--lr", "-0.1"},           {"--lr", "nan"},
      {"--optimizer", "adam"},    {"--fabric", "ib"},
      {"--wire", "fp8"},          {"--deadline", "60"},
      {"--emulate-link", "fast"}, {"--emulate-speeds", "1,0"},
      {"--set", "modle.width=3"}, {"--checkpoint-every", "10"},
      {"--resume", "/no/such"},   {"--trace", "/tmp"},
      {"--out", "/dev/null/x"},   {"--device", "gpu"},
      {"--device", "cuda:-1"},    {"--precision", "fp16"},
      {"--tf32", "yes"},          {"--channels-last", "maybe"}};
  // All at once: torch takes its time to load.
  std::vector<std::unique_ptr<Process>> started;
  for (const auto& words : table)
    started.push_back(
        std::make_unique<Process>(std::vector<std::string>{kSkein, "train", words[0], words[1]}));
  for (std::size_t i = 0; i < table.size(); ++i) {
    const auto end = started[i]->wait();
    EXPECT_EQ(end.code, 2) << table[i][0];
    EXPECT_EQ(count(end.err, "\n"), 1) << end.err;
    EXPECT_EQ(end.err.rfind("skein train: " + table[i][0], 0), 0u) << end.err;
    EXPECT_GE(count(end.err, table[i][1]), 1) << end.err;
  }
}

TEST(TrainOptions, RefusesWhatDoesNotFitTogether) {
  EXPECT_EQ(refusal({"--samples", "5", "--epochs", "2"}),
            "--samples 5 and --epochs 2: expected one of the two\n");
  EXPECT_EQ(refusal({"--workers", "2", "--emulate-speeds", "1,1,2"}),
            "--emulate-speeds 1,1,2: 3 speeds, 2 workers; expected one each\n");
  EXPECT_EQ(refusal({"--optimizer", "adamw", "--momentum", "0.5"}),
            "--momentum: --optimizer adamw does not use it; expected sgd\n");
  EXPECT_EQ(refusal({"--nesterov", "--momentum", "0"}),
            "--nesterov with --momentum 0: expected a momentum above 0\n");
  EXPECT_EQ(refusal({"--wire", "bf16", "--set", "strategy.wire=f32"}),
            "--wire bf16 and --set strategy.wire=f32: expected one of the two\n");
  EXPECT_EQ(refusal({"--set", "strategy.wire=f16"}),
            "strategy.wire = 'f16': expected f32 or bf16\n");
  EXPECT_EQ(refusal({"--groups", "head.*:speed=2"}),
            "--groups head.*:speed=2: unknown key 'speed': expected lr, factor, weight-decay, "
            "momentum, frozen\n");
  EXPECT_EQ(refusal({"--topology", "ring"}), "--topology: strategy 'allreduce' does not use it\n");
}

// Without any GPU in sight, whatever this machine has.
TEST(TrainOptions, SaysWhyThereIsNoGpu) {
  const Process::Environment hidden{{"CUDA_VISIBLE_DEVICES", ""}};
  const auto why = [](const std::string& device, const std::string& text) {
    const std::string begin = "--device " + device + ": there is no GPU to use: ";
    EXPECT_EQ(text.rfind(begin, 0), 0u) << text;
    EXPECT_GT(text.size(), begin.size() + 10) << text;
  };
  why("cuda", refusal({"--device", "cuda"}, hidden));
  why("cuda:1", refusal({"--device", "cuda:1", "--workers", "2"}, hidden));
  EXPECT_EQ(refusal({"--device", "cpu", "--tf32", "on"}),
            "--tf32 on: only GPUs have it; expected --device cuda or auto\n");
}

TEST(TrainOptions, DeviceAndPrecisionStandInAFileToo) {
  const Folder folder;
  std::ofstream(folder / "c.toml") << "device = \"cpu\"\nprecision = \"bf16\"\nsamples = 64\n"
                                      "deterministic = true\n[data]\ntrain = 64\ntest = 10\n";
  const auto end = skein({"train", "--config", folder / "c.toml", "--json", folder / "run.json"});
  EXPECT_EQ(end.code, 0) << end.err;
  const auto json = nlohmann::json::parse(contents(folder / "run.json"));
  EXPECT_EQ(json.at("device"), "cpu");
  EXPECT_EQ(json.at("precision"), "bf16");
  EXPECT_EQ(json.at("per_worker").at(0).at("device"), "cpu");
  EXPECT_EQ(json.at("config").at("device"), "cpu");
  EXPECT_EQ(json.at("config").at("workers"), 1);
  EXPECT_FALSE(json.contains("device_memory_bytes"));
}

TEST(TrainOptions, SuggestsWhatWasMeant) {
  EXPECT_EQ(refusal({"--stratgey", "allreduce"}),
            "unknown option '--stratgey'; did you mean '--strategy'?\n");
  EXPECT_EQ(count(refusal({"--strategy", "alreduce"}), "did you mean 'allreduce'?"), 1);
  EXPECT_EQ(refusal({"left"}), "unexpected 'left'\n");
}

TEST(TrainOptions, SaysWhatIsGivenTwiceOrWithoutAValue) {
  EXPECT_EQ(refusal({"--batch", "8", "--epochs", "2", "--batch=16"}),
            "--batch is given 2 times (8, 16): expected once\n");
  EXPECT_EQ(refusal({"--epochs", "2", "--batch"}), "--batch has no value: expected N\n");
  const auto twice = skein({"run", "-n", "2", "--workers", "3", "--", "true"});
  EXPECT_EQ(twice.err, "skein run: --workers is given 2 times (2, 3): expected once\n");
}

TEST(TrainOptions, SaysThatAFolderIsNoConfigFile) {
  const Folder folder;
  EXPECT_EQ(refusal({"--config", folder.path()}),
            "--config " + folder.path() + ": this is a folder; expected a TOML file\n");
}

TEST(CommandLine, FoldersOfFilesThatAreWrittenAreMade) {
  const Folder folder;
  const auto end = skein({"doctor", "--quiet", "--json", folder / "new/and/deep/doctor.json"});
  EXPECT_EQ(end.code, 0) << end.err;
  EXPECT_FALSE(contents(folder / "new/and/deep/doctor.json").empty());
}

TEST(TrainOptions, RefusesAWrongFileWithItsLine) {
  const Folder folder;
  const auto error = [&](const std::string& text) {
    std::ofstream(folder / "c.toml") << text;
    return refusal({"--config", folder / "c.toml"});
  };
  const std::string file = folder / "c.toml";
  EXPECT_EQ(error("epochs = 1\nbatsh = 3\n"),
            file + ":2: unknown key 'batsh'; did you mean 'batch'?\n");
  EXPECT_EQ(error("lr = -3.5\n"), file + ":1: --lr -3.5: expected a positive number\n");
  EXPECT_EQ(error("lr = true\n"), file + ":1: lr = true: expected NUMBER\n");
}

TEST(TrainOptions, RefusesHalfSetLaunchersAndOtherWorkerCounts) {
  EXPECT_EQ(count(refusal({}, {{"SKEIN_RANK", "0"}}), "SKEIN_SIZE, SKEIN_RUN are not"), 1);
  EXPECT_EQ(
      refusal({"--workers", "3"}, {{"SKEIN_RANK", "0"}, {"SKEIN_SIZE", "2"}, {"SKEIN_RUN", "x"}}),
      "--workers 3: skein has started 2; leave the option out\n");
}

TEST(Doctor, SaysWhatIsThere) {
  const Folder folder;
  const auto end = skein({"doctor", "--json", folder / "d.json"});
  EXPECT_EQ(end.code, 0) << end.err;
  const auto json = nlohmann::json::parse(contents(folder / "d.json"));
  EXPECT_EQ(json.at("command"), "doctor");
  EXPECT_EQ(json.at("fabrics"), nlohmann::json(fabric_names()));
  EXPECT_EQ(json.at("strategies").at(0), "allreduce");
  EXPECT_GE(json.at("cores"), 1);
  EXPECT_GT(json.at("memory_bytes"), 0);
  EXPECT_TRUE(json.at("memfd"));
  EXPECT_TRUE(json.at("pidfd"));
  EXPECT_NE(json.at("blas"), "");
  EXPECT_EQ(count(end.out, json.at("torch").get<std::string>()) > 0, true);
  EXPECT_EQ(count(json.at("torch_path"), "/libtorch_cpu.so"), 1) << json;
  EXPECT_EQ(count(json.at("filesystem_path"), "/libstdc++.so"), 1) << json;
  EXPECT_TRUE(json.at("filesystem_safe"));
  EXPECT_EQ(json.at("gpus").empty(), json.at("why_no_gpu") != "") << json;
  EXPECT_EQ(count(end.out, "\nCUDA "), 1) << end.out;
}

TEST(Doctor, ReportsAHalfSetLauncherAsAFinding) {
  const auto end = skein({"doctor"}, {{"OMPI_COMM_WORLD_RANK", "0"}});
  EXPECT_EQ(end.code, 0);
  EXPECT_EQ(count(end.out, "OMPI_COMM_WORLD_SIZE"), 1) << end.out;
}

}  // namespace
}  // namespace skein::testing
