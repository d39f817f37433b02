#include "cli/advise_options.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "cli/job_options.h"
#include "cli/json_output.h"
#include "cli/simulate_options.h"
#include "core/units.h"
#include "skein/error.h"

namespace skein {
namespace {

const std::vector<std::string> kModelsOfTrain{"mlp", "cnn", "resnet18", "resnet50", "gpt"};

void append(std::vector<std::string>& words, const std::string& name, const std::string& value) {
  words.push_back(name);
  words.push_back(value);
}

}  // namespace

AdviseOptionReader::AdviseOptionReader(CLI::App& command) : command_(command), options_(command) {
  declare_model();
  declare_cluster();
  declare_answer();
  options_.declare_common();
}

void AdviseOptionReader::forwarded(const std::string& name, const std::string& kind,
                                   const std::string& help) {
  options_.text(name, ignored_, kind, help);
  forwarded_.push_back(name);
}

void AdviseOptionReader::declare_model() {
  TrainOptions& job = measured_model_.job;
  job.device = "cpu";
  options_.group("The model");
  options_.text("--profile", profile_, "NAME|FILE",
                fmt::format("times and tensors: {}, or a file of skein profile",
                            fmt::join(sim::builtin_profile_names(), ", ")));
  options_.text("--model", job.model, "NAME",
                "in place of --profile: mlp, cnn, resnet18, resnet50 or gpt, measured here");
  options_.text("--data", job.data, "SET", "that it is measured with, as of skein train");
  options_.repeated("--set", sets_, "PART.KEY=VALUE",
                    "a setting of model or data, such as model.width=64");
  options_.text("--device", job.device, "WHERE", "where it is measured: cpu, cuda, cuda:K or auto");
  options_.integer("--threads", job.threads, 1, 1024, "N", "threads of a worker");
  options_.document("--save-profile", save_profile_, "FILE.json", "keep what was measured");
  options_.integer("--batch", job.batch, 1, "N",
                   "samples per worker and micro-batch; the profile's unless given", 1 << 24);
  forwarded_.emplace_back("--batch");
  forwarded("--accumulate", "N", "micro-batches per step");
}

void AdviseOptionReader::declare_cluster() {
  options_.group("The cluster, as skein simulate describes it");
  forwarded("--workers", "N", "how many (8)");
  forwarded("--network", "NETWORK",
            fmt::format("{}; with changes: 10gbe:latency=30us,bandwidth=9gbit (10gbe)",
                        fmt::join(sim::network_names(), ", ")));
  forwarded("--gpus-per-host", "N", "workers that share a NIC (1)");
  forwarded("--links", "FILE", "links that are worse: lines of FROM TO BANDWIDTH [LATENCY]");
  forwarded("--emulate-speeds", "LIST", "relative speed of each worker, such as 1,1,2,4");
  forwarded("--jitter", "NUMBER", "a micro-batch takes 1 ± this of its time");
  forwarded("--slowdowns", "every=TIME,for=TIME,factor=X", "slow periods that come and go");
  forwarded("--emulate-step", "TIME", "a micro-batch at speed 1 takes this");
  forwarded("--emulate-link", "RATE", "in place of --network: bandwidth of each worker");
  forwarded("--emulate-latency", "TIME", "in place of --network: delay of every message");
  forwarded("--deadline", "TIME", "longest silence of another worker");
  options_.group("The cluster, measured");
  hosts_.declare(options_);
  network_.declare(options_);
}

void AdviseOptionReader::declare_answer() {
  options_.group("The answer");
  options_.number(
      "--margin", margin_, "a number from 0 to 1000", [](double x) { return x >= 0 && x <= 1000; },
      "per cent that a strategy which is not synchronous must be faster");
  options_.integer("--steps", steps_, 8, 10'000, "N",
                   "of each simulation; 40 unless given, fewer for large clusters");
  options_.flag("--quick", quick_, "try no settings, and do not look for what changes the answer");
  options_.document("--map", map_, "FILE.svg",
                    "draw the answers over bandwidth and heterogeneity, and print them");
}

void AdviseOptionReader::refuse_together(const std::vector<std::string>& names,
                                         const std::string& why) const {
  for (const std::string& name : names)
    if (options_.given(name))
      throw ConfigError(fmt::format("{}: {}; leave out one of the two", name, why));
}

bool AdviseOptionReader::emulated() const {
  return options_.given("--emulate-step") || options_.given("--emulate-link") ||
         options_.given("--emulate-latency");
}

void AdviseOptionReader::read() {
  options_.read_config_file();
  const bool model = options_.given("--model");
  if (!model && profile_.empty())
    throw ConfigError(fmt::format("which model? expected --profile NAME|FILE ({}) or --model NAME",
                                  fmt::join(sim::builtin_profile_names(), ", ")));
  if (!profile_.empty())
    refuse_together({"--model", "--data", "--set", "--device", "--threads", "--save-profile"},
                    fmt::format("--profile {} measures nothing", profile_));
  if (on_hosts())
    refuse_together({"--workers", "--network", "--gpus-per-host", "--links", "--emulate-speeds",
                     "--emulate-step", "--emulate-link", "--emulate-latency"},
                    "--hosts measures the cluster");
  else
    for (const char* name :
         {"--fabric", "--rendezvous", "--secret", "--tls-cert", "--tls-key", "--tls-ca",
          "--encrypt", "--ssh", "--remote-skein", "--env", "--print-commands"})
      if (options_.given(name))
        throw ConfigError(fmt::format("{}: there are no hosts; expected --hosts too", name));
  if (!map_.empty()) prepare_file("--map", map_);
  if (!save_profile_.empty()) prepare_file("--save-profile", save_profile_);
  TrainOptions& job = measured_model_.job;
  job.seed = options_.seed();
  read_settings(options_, sets_, {"model", "data"}, job);
  // What is emulated needs the tensors only.
  if (options_.given("--emulate-step")) {
    measured_model_.iterations = 3;
    measured_model_.warmup = 1;
  }
}

sim::Scenario AdviseOptionReader::cluster(const std::string& profile,
                                          const std::optional<MeasuredCluster>& measured) const {
  std::vector<std::string> words;
  for (const std::string& name : forwarded_)
    if (options_.given(name)) append(words, name, command_.get_option(name)->results().back());
  if (options_.given("--levels")) append(words, "--levels", network_.levels);
  append(words, "--profile", profile);
  append(words, "--seed", fmt::format("{}", options_.seed()));
  if (measured) {
    append(words, "--workers", fmt::format("{}", measured->workers));
    append(words, "--gpus-per-host", fmt::format("{}", measured->workers_per_host));
    append(words, "--network",
           fmt::format("link:bandwidth={:.0f}kbit,latency={:.0f}ns",
                       measured->bytes_per_second * 8 / 1e3, 1e9 * seconds(measured->latency)));
    if (!measured->speeds.empty())
      append(words, "--emulate-speeds", fmt::format("{}", fmt::join(measured->speeds, ",")));
  }
  CLI::App app;
  SimulateOptionReader reader(app);
  std::reverse(words.begin(), words.end());  // as CLI11 wants them
  try {
    app.parse(std::move(words));
  } catch (const CLI::ParseError& error) {
    throw ConfigError(error.what());
  }
  return reader.read().scenario;
}

advise::Effort AdviseOptionReader::effort(const sim::Scenario& cluster) const {
  advise::Effort effort;
  effort.steps = steps_ > 0 ? steps_ : advise::affordable_steps(cluster);
  effort.quick = quick_;
  effort.changes = !quick_;
  effort.rule.margin = margin_;
  return effort;
}

std::vector<std::string> AdviseOptionReader::train_options(const sim::Scenario& cluster) const {
  std::vector<std::string> words;
  if (on_hosts())
    append(words, options_.given("--hosts") ? "--hosts" : "--hostfile",
           command_.get_option(options_.given("--hosts") ? "--hosts" : "--hostfile")
               ->results()
               .back());
  else
    append(words, "--workers", fmt::format("{}", cluster.workers));
  const std::string model = measures_model() ? measured_model_.job.model : cluster.profile.name;
  if (std::ranges::count(kModelsOfTrain, model) > 0) append(words, "--model", model);
  if (options_.given("--data")) append(words, "--data", measured_model_.job.data);
  for (const auto& [key, value] : measured_model_.job.model_settings)
    append(words, "--set", fmt::format("model.{}={}", key, value));
  for (const auto& [key, value] : measured_model_.job.data_settings)
    append(words, "--set", fmt::format("data.{}={}", key, value));
  append(words, "--batch", fmt::format("{}", cluster.batch));
  if (cluster.accumulate > 1) append(words, "--accumulate", fmt::format("{}", cluster.accumulate));
  if (!emulated()) return words;
  for (const char* name :
       {"--emulate-step", "--emulate-link", "--emulate-latency", "--jitter", "--slowdowns"})
    if (options_.given(name)) append(words, name, command_.get_option(name)->results().back());
  if (!cluster.speeds.empty())
    append(words, "--emulate-speeds", fmt::format("{}", fmt::join(cluster.speeds, ",")));
  return words;
}

}  // namespace skein
