#include "cli/simulate_options.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

#include "cli/json_output.h"
#include "core/parse_number.h"
#include "core/units.h"
#include "sim/compute.h"
#include "sim/objectives/objectives.h"
#include "skein/error.h"
#include "strategy/registry.h"
#include "train/optimizer.h"
#include "train/virtual_cluster.h"

namespace skein {
namespace {

constexpr int kMostWorkers = 100'000;
constexpr std::int64_t kDefaultIterations = 10, kDefaultIterationsOfTraining = 200;
// Evaluating a real model takes real time.
constexpr int kObservations = 50, kObservationsOfModel = 10;

// A model of one tensor for objectives that bring no profile.
sim::Profile plain_profile(const std::string& name) {
  sim::Profile profile;
  profile.name = name;
  profile.batch = 32;
  profile.layers = {
      {"all", {1}, std::chrono::microseconds(33333), std::chrono::microseconds(66667)}};
  return profile;
}

std::vector<double> repeated_to(const std::vector<double>& speeds, int workers) {
  if (speeds.empty()) return {};
  const auto count = static_cast<std::size_t>(workers);
  if (count % speeds.size() != 0)
    throw ConfigError(fmt::format(
        "--emulate-speeds {}: {} speeds do not divide {} workers; expected one each, or a pattern "
        "that is repeated",
        fmt::join(speeds, ","), speeds.size(), workers));
  std::vector<double> all;
  for (std::size_t rank = 0; rank < count; ++rank) all.push_back(speeds[rank % speeds.size()]);
  return all;
}

}  // namespace

SimulateOptionReader::SimulateOptionReader(CLI::App& command)
    : options_(command), shared_(options_, job_) {
  job_.workers = 8;
  job_.device = "cpu";
  job_.deterministic = true;  // everything is, here
  options_.group("The job");
  shared_.declare_strategy();
  declare_objective();
  declare_cluster();
  declare_compute();
  declare_length();
  shared_.declare_optimizer();
  declare_reports();
  options_.declare_common();
}

void SimulateOptionReader::declare_objective() {
  options_.choice("--objective", objective_,
                  {"none", "consensus", "quadratic", "logistic", "model"},
                  "what is optimised; none: only time is simulated");
  shared_.declare_model();
  options_.integer("--dimension", dimension_, 1, 1'000'000, "N",
                   "of consensus (8), quadratic (64), features of logistic (32)");
  options_.number(
      "--condition", condition_, "a number of at least 1", [](double x) { return x >= 1; },
      "condition number of quadratic");
  options_.number("--noise", noise_, "a number of at least 0", not_negative,
                  "of one sample's gradient, of quadratic");
  options_.number("--skew", skew_, "a number of at least 0", not_negative,
                  "how far the workers' own minima are apart, of quadratic");
  options_.number("--dirichlet", dirichlet_, "a positive number", positive,
                  "skews the workers' labels, of logistic and model; the smaller the more");
}

void SimulateOptionReader::declare_cluster() {
  options_.group("The cluster");
  options_.integer("--workers", job_.workers, 1, kMostWorkers, "N", "virtual workers");
  options_.text(
      "--network", network_, "NETWORK",
      fmt::format("{}; with changes: 10gbe:latency=30us,jitter=5us,bandwidth=9gbit,chunk=none",
                  fmt::join(sim::network_names(), ", ")));
  options_.integer("--gpus-per-host", workers_per_host_, 1, 4096, "N", "workers that share a NIC");
  options_.choice("--levels", levels_, {"auto", "one"},
                  "auto: collectives run inside hosts and between them; one: over all workers");
  options_.text("--links", links_, "FILE",
                "links between hosts that are worse: lines of FROM TO BANDWIDTH [LATENCY]");
  shared_.declare_link();
  options_.duration("--deadline", job_.deadline, "longest silence of another worker");
  options_.text("--faults", faults_, "LIST",
                "what goes wrong, separated by ';': crash:rank=3,at=2s; vanish, restart, pause, "
                "partition, delay, slow; random:count=3,within=10s");
}

void SimulateOptionReader::declare_compute() {
  options_.group("Computation");
  options_.text("--profile", profile_, "NAME|FILE",
                fmt::format("times and tensors: {}, or a file of skein profile",
                            fmt::join(sim::builtin_profile_names(), ", ")));
  options_.integer("--batch", batch_, 1, "N",
                   "samples per worker and micro-batch; the profile's unless given", 1 << 24);
  options_.integer("--accumulate", job_.accumulate, 1, 1 << 20, "N", "micro-batches per step");
  shared_.declare_speeds();
  options_.text("--device", job_.device, "WHERE",
                "of objective model: cpu, cuda, cuda:K, or auto (cuda, else cpu)");
  options_.choice("--precision", job_.precision, {"f32", "bf16"},
                  "of forward and loss of objective model");
  options_.choice("--tf32", job_.tf32, {"default", "on", "off"},
                  "may float32 products on GPUs be rounded; default: torch's own, convolutions");
  options_.choice("--graphs", graphs_, {"on", "off"},
                  "on GPUs: record a worker's step as a CUDA graph; the same bits, sooner");
}

void SimulateOptionReader::declare_length() {
  options_.group("Length");
  options_.integer("--iterations", iterations_, 1, "N",
                   "steps, each of batch x workers samples; 10 for objective none, else 200");
  options_.integer("--samples", job_.samples, 1, "N", "over all workers, in place of --iterations");
  options_.text("--time", time_, "TIME",
                "virtual: 30s, or a bare number: times the mean time of one gradient");
  options_.number("--target-loss", target_loss_, "a positive number", positive,
                  "stop when the loss is this low");
  options_.number(
      "--target-accuracy", job_.target_accuracy, "a number above 0, at most 1",
      [](double value) { return value > 0 && value <= 1; }, "stop when the accuracy reaches this");
}

void SimulateOptionReader::declare_reports() {
  options_.group("Reports");
  options_.repeated(
      "--sweep", sweeps_, "KEY=V1,V2…",
      "run a grid, a row each: workers=8,64 or strategy.fusion=none,25MB; values with "
      "commas: KEY=V1|V2");
  options_.duration(
      "--observe-every", observe_every_,
      "virtual time between two looks at the models; else 50 over the run, 10 of model");
  options_.document("--trace", trace_, "FILE", "write a trace for Perfetto or chrome://tracing");
  options_.integer("--trace-workers", trace_workers_, 1, kMostWorkers, "N",
                   "how many workers the trace shows");
  options_.text("--swarm", swarm_, "SEED|FIRST..LAST",
                "random clusters with random faults, drawn from each seed: does anything hang?");
}

sim::Network SimulateOptionReader::read_network() const {
  std::string text = network_;
  if (job_.emulate_link > 0 || job_.emulate_latency.count() > 0) {
    if (options_.given("--network"))
      throw ConfigError(
          "--network and --emulate-link or --emulate-latency: expected one of the two");
    text = "link:bandwidth=1GB/s";
  }
  sim::Network network = sim::parse_network(text);
  if (text != network_) {
    network.bytes_per_second = job_.emulate_link > 0 ? job_.emulate_link : 100e9;
    network.latency = job_.emulate_latency;
  }
  network.workers_per_host = workers_per_host_;
  network.two_levels = levels_ == "auto";
  const int hosts = (job_.workers + workers_per_host_ - 1) / workers_per_host_;
  if (!links_.empty()) network.links = sim::read_links(links_, hosts);
  return network;
}

sim::Profile SimulateOptionReader::read_profile() const {
  if (profile_.empty() && objective_ == "none" && job_.emulate_step.count() == 0)
    throw ConfigError(fmt::format(
        "--profile is missing: objective none needs to know the tensors; expected {}, or a file "
        "written by skein profile",
        fmt::join(sim::builtin_profile_names(), ", ")));
  sim::Profile profile = profile_.empty()
                             ? plain_profile(objective_ == "model" ? job_.model : objective_)
                             : sim::find_profile(profile_);
  if (job_.emulate_step.count() > 0)
    profile =
        sim::emulated_profile(profile, job_.emulate_step, batch_ > 0 ? batch_ : profile.batch);
  return profile;
}

void SimulateOptionReader::read_length(sim::Scenario& scenario) const {
  if (options_.given("--iterations") && options_.given("--samples"))
    throw ConfigError(fmt::format("--iterations {} and --samples {}: expected one of the two",
                                  iterations_, job_.samples));
  const int looks = objective_ == "model" ? kObservationsOfModel : kObservations;
  if (!time_.empty()) {
    double units = 0;
    const bool bare = parse_number(time_, units);
    if (bare && (!std::isfinite(units) || units <= 0))
      throw ConfigError(fmt::format("--time {}: expected more than 0", time_));
    scenario.time =
        bare ? from_seconds(units * seconds(scenario.mean_gradient())) : parse_duration(time_);
    scenario.observe_time = scenario.time / looks;
  }
  const std::int64_t step = scenario.batch * scenario.accumulate * scenario.workers;
  scenario.samples = job_.samples;
  if (iterations_ > 0) scenario.samples = iterations_ * step;
  if (scenario.samples == 0 && time_.empty())
    scenario.samples =
        step * (objective_ == "none" ? kDefaultIterations : kDefaultIterationsOfTraining);
  scenario.target_loss = target_loss_;
  scenario.target_accuracy = job_.target_accuracy;
  if (observe_every_.count() > 0)
    scenario.observe_time = observe_every_;
  else if (time_.empty())
    scenario.observe_samples = std::max<std::int64_t>(1, scenario.samples / looks);
}

bool SimulateOptionReader::may_use_models() const {
  const auto of_objectives = [](const std::string& axis) { return axis.starts_with("objective="); };
  return objective_ == "model" || std::ranges::any_of(sweeps_, of_objectives);
}

std::unique_ptr<sim::Objective> SimulateOptionReader::make_objective() const {
  const auto only_for = [&](const char* option, std::initializer_list<const char*> objectives) {
    if (!options_.given(option)) return;
    for (const char* each : objectives)
      if (objective_ == each) return;
    throw ConfigError(fmt::format("{}: --objective {} does not use it; expected {}", option,
                                  objective_, fmt::join(objectives, " or ")));
  };
  only_for("--dimension", {"consensus", "quadratic", "logistic"});
  for (const char* option : {"--condition", "--noise", "--skew"}) only_for(option, {"quadratic"});
  only_for("--dirichlet", {"logistic", "model"});
  for (const char* option : {"--model", "--data", "--device", "--precision", "--tf32", "--graphs"})
    only_for(option, {"model"});
  only_for("--target-loss", {"quadratic", "logistic", "model"});
  only_for("--target-accuracy", {"logistic", "model"});
  if (objective_ == "none") return nullptr;
  const auto dirichlet =
      options_.given("--dirichlet") ? std::optional<double>(dirichlet_) : std::nullopt;
  if (objective_ == "model")
    return make_model_objective(job_, job_.workers, dirichlet, graphs_ == "on");
  return sim::make_objective({.name = objective_,
                              .workers = job_.workers,
                              .seed = job_.seed,
                              .dimension = dimension_,
                              .condition = condition_,
                              .noise = noise_,
                              .skew = skew_,
                              .dirichlet = dirichlet});
}

SimulateOptionReader::Request SimulateOptionReader::read() {
  shared_.read(objective_ == "model");
  if (!job_.json.empty()) prepare_file("--json", job_.json);
  if (!trace_.empty()) prepare_file("--trace", trace_);
  Request request;
  sim::Scenario& scenario = request.scenario;
  scenario.workers = job_.workers;
  scenario.seed = job_.seed;
  scenario.network = read_network();
  scenario.strategy = job_.strategy;
  scenario.strategy_settings = job_.strategy_settings;
  scenario.patience = job_.deadline;
  scenario.profile = read_profile();
  scenario.batch = batch_ > 0 ? batch_ : scenario.profile.batch;
  scenario.accumulate = job_.accumulate;
  scenario.speeds = repeated_to(job_.emulate_speeds, job_.workers);
  scenario.jitter = job_.jitter;
  scenario.slowdowns = job_.slowdowns;
  read_length(scenario);
  scenario.optimizer = [job = job_](std::size_t size, Allocate allocate) {
    return make_optimizer(job, size, std::move(allocate));
  };
  scenario.learning_rate =
      LearningRate(job_.learning_rate, parse_schedule(job_.schedule), scenario.samples);
  scenario.clip = job_.clip;
  scenario.faults = sim::parse_faults(faults_, job_.workers, job_.seed);
  job_.batch = scenario.batch;
  request.objective_name = objective_;
  request.objective = make_objective();
  request.trace = trace_;
  request.trace_workers = std::min(trace_workers_, job_.workers);
  return request;
}

}  // namespace skein
