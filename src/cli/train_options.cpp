#include "cli/train_options.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cmath>
#include <cstring>
#include <filesystem>

#include "cli/json_output.h"
#include "cli/suggest.h"
#include "optimize/schedule.h"
#include "skein/error.h"
#include "strategy/registry.h"

namespace skein {
namespace {

constexpr int kMostWorkers = 4096;

bool positive(double value) { return value > 0; }
bool not_negative(double value) { return value >= 0; }

std::vector<double> parse_speeds(const std::string& text) {
  std::vector<double> out;
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t comma = std::min(text.find(',', begin), text.size());
    double value = 0;
    const char* end = text.data() + comma;
    const auto [rest, code] = std::from_chars(text.data() + begin, end, value);
    if (code != std::errc() || rest != end || !std::isfinite(value) || value <= 0)
      throw ConfigError(fmt::format(
          "--emulate-speeds {}: expected positive numbers with commas, such as 1,1,2,4", text));
    out.push_back(value);
    begin = comma + 1;
  }
  return out;
}

}  // namespace

TrainOptionReader::TrainOptionReader(CLI::App& command) : options_(command) {
  declare_job();
  declare_workers();
  declare_length();
  declare_optimizer();
  declare_files();
  declare_emulation();
  declare_reports();
  options_.declare_common();
}

void TrainOptionReader::declare_job() {
  options_.group("The job");
  options_.choice("--strategy", job_.strategy, strategy_names(), "how the workers cooperate");
  options_.text("--model", job_.model, "NAME", "mlp, cnn, resnet18, resnet50, gpt");
  options_.text("--data", job_.data, "SET",
                "glyphs, mnist:DIR, cifar10:DIR, images:DIR, text:FILE");
  options_.repeated("--set", sets_, "PART.KEY=VALUE",
                    "a setting, such as model.width=64; of strategy, model or data");
}

void TrainOptionReader::declare_workers() {
  options_.group("Workers");
  options_.integer("--workers", job_.workers, 1, kMostWorkers, "N",
                   "worker processes on this host (under torchrun, mpirun, srun: theirs)");
  options_.text("--fabric", job_.fabric, "NAME", "what joins them: local (one host)");
  options_.integer("--threads", job_.threads, 1, 1024, "N", "threads of each worker");
  options_.duration("--deadline", job_.deadline, "longest wait for another worker");
  options_.text("--topology", topology_, "GRAPH", "who talks to whom (gossip strategies)");
  options_.number("--rate", rate_, "a positive number", positive,
                  "exchanges per gradient (gossip strategies)");
}

void TrainOptionReader::declare_length() {
  options_.group("Length");
  options_.integer("--epochs", job_.epochs, 1, 1'000'000, "N", "passes over the data");
  options_.integer("--samples", job_.samples, 1, "N",
                   "samples over all workers, in place of --epochs");
  options_.integer("--batch", job_.batch, 1, "N", "samples per worker and micro-batch", 1 << 24);
  options_.integer("--accumulate", job_.accumulate, 1, 1 << 20, "N", "micro-batches per step");
  options_.number(
      "--target-accuracy", job_.target_accuracy, "a number above 0, at most 1",
      [](double value) { return value > 0 && value <= 1; }, "stop when an evaluation reaches this");
}

void TrainOptionReader::declare_optimizer() {
  options_.group("Optimizer");
  options_.choice("--optimizer", job_.optimizer, {"sgd", "adamw"},
                  "what turns gradients into steps");
  // Its default depends on --optimizer, so none is shown as the value.
  job_.learning_rate = 0;
  options_.number("--lr", job_.learning_rate, "a positive number", positive,
                  "learning rate; 0.05 for sgd and 0.001 for adamw unless given");
  options_.number(
      "--momentum", job_.momentum, "a number from 0 to below 1",
      [](double value) { return value >= 0 && value < 1; }, "of sgd");
  options_.flag("--nesterov", job_.nesterov, "Nesterov's momentum, of sgd");
  options_.number("--weight-decay", job_.weight_decay, "a number of at least 0", not_negative,
                  "decay of the parameters");
  options_.flag("--no-decay-1d", no_decay_1d_, "no decay on biases and other 1-D tensors");
  options_.text("--schedule", job_.schedule, "SCHEDULE",
                "constant, cosine:floor=0.001,warmup=5000, step:every=50000,factor=0.1");
  options_.number("--clip", job_.clip, "a positive number", positive,
                  "largest global norm of the gradient");
  options_.text("--wire", job_.wire, "TYPE", "what gradients travel as: f32");
}

void TrainOptionReader::declare_files() {
  options_.group("Files");
  options_.text("--out", job_.out, "DIR", "keep metrics, model, checkpoints and logs here");
  options_.text("--resume", job_.resume, "DIR", "continue the run that has this --out");
  options_.integer("--checkpoint-every", job_.checkpoint_every, 1, "SAMPLES",
                   "save a checkpoint each time so many samples are done");
  options_.integer("--keep-checkpoints", job_.keep_checkpoints, 1, 1'000'000, "N",
                   "how many of the newest to keep");
  options_.text("--trace", job_.trace, "FILE", "write a trace for Perfetto or chrome://tracing");
}

void TrainOptionReader::declare_emulation() {
  options_.group("Emulation: one host as a bad cluster");
  options_.text("--emulate-speeds", speeds_, "LIST",
                "relative speed of each worker, such as 1,1,2,4");
  options_.duration("--emulate-step", job_.emulate_step,
                    "a micro-batch at speed 1 takes at least this");
  options_.bandwidth("--emulate-link", job_.emulate_link,
                     "bandwidth of each worker, each direction, such as 1gbit");
  options_.duration("--emulate-latency", job_.emulate_latency, "delay of every message");
}

void TrainOptionReader::declare_reports() {
  options_.group("Reports");
  options_.integer("--eval-every", job_.eval_every, 1, "SAMPLES",
                   "evaluate each time so many samples are done (else each epoch)");
  options_.integer("--log-every", job_.log_every, 1, "STEPS",
                   "a line each time so many steps are done");
  options_.flag("--verify", job_.verify,
                "check after every step that all replicas are bit-equal (slow)");
}

TrainOptions TrainOptionReader::read() {
  options_.read_config_file();
  job_.seed = options_.seed();
  job_.quiet = options_.quiet();
  job_.json = options_.json();
  job_.decay_1d = !no_decay_1d_;
  if (!speeds_.empty()) job_.emulate_speeds = parse_speeds(speeds_);
  check_choices();
  check_optimizer();
  read_settings();
  check_strategy(job_.strategy, job_.strategy_settings);
  check_files();
  job_.command = "train";
  job_.version = SKEIN_VERSION;
  nlohmann::json config = options_.config();
  config["lr"] = job_.learning_rate;
  job_.config_json = config.dump();
  return job_;
}

void TrainOptionReader::check_choices() const {
  static const std::vector<std::string> later{"tcp", "mpi", "nccl"};
  if (job_.fabric != "local") {
    const bool known = std::find(later.begin(), later.end(), job_.fabric) != later.end();
    throw ConfigError(fmt::format("--fabric {}: {}; expected local", job_.fabric,
                                  known ? "not in this build" : "there is no such fabric"));
  }
  if (job_.wire != "f32")
    throw ConfigError(
        fmt::format("--wire {}: {}; expected f32", job_.wire,
                    job_.wire == "bf16" ? "not in this build" : "there is no such type"));
  for (const char* name : {"--topology", "--rate"})
    if (options_.given(name))
      throw ConfigError(fmt::format("{}: strategy '{}' does not use it", name, job_.strategy));
  if (options_.given("--samples") && options_.given("--epochs"))
    throw ConfigError(fmt::format("--samples {} and --epochs {}: expected one of the two",
                                  job_.samples, job_.epochs));
  if (job_.deadline.count() <= 0) throw ConfigError("--deadline 0: expected more than 0");
}

void TrainOptionReader::check_optimizer() {
  const bool sgd = job_.optimizer == "sgd";
  if (!options_.given("--lr")) job_.learning_rate = sgd ? 0.05 : 0.001;
  for (const char* name : {"--momentum", "--nesterov"})
    if (!sgd && options_.given(name))
      throw ConfigError(
          fmt::format("{}: --optimizer {} does not use it; expected sgd", name, job_.optimizer));
  if (job_.nesterov && job_.momentum == 0)
    throw ConfigError("--nesterov with --momentum 0: expected a momentum above 0");
  parse_schedule(job_.schedule);
}

void TrainOptionReader::read_settings() {
  static const std::vector<std::string> parts{"strategy", "model", "data"};
  std::vector<std::string> all = options_.config_sets();
  all.insert(all.end(), sets_.begin(), sets_.end());  // later ones win
  for (const std::string& text : all) {
    const std::size_t dot = text.find('.'), equals = text.find('=');
    if (dot == std::string::npos || equals == std::string::npos || dot + 1 >= equals)
      throw ConfigError(fmt::format("--set {}: expected PART.KEY=VALUE with PART one of {}", text,
                                    fmt::join(parts, ", ")));
    const std::string part = text.substr(0, dot);
    const std::string key = text.substr(dot + 1, equals - dot - 1);
    const std::string value = text.substr(equals + 1);
    if (part == "strategy")
      job_.strategy_settings[key] = value;
    else if (part == "model")
      job_.model_settings[key] = value;
    else if (part == "data")
      job_.data_settings[key] = value;
    else
      throw ConfigError(fmt::format("--set {}: there is no part '{}'; expected {}{}", text, part,
                                    fmt::join(parts, ", "), did_you_mean(part, parts)));
  }
}

void TrainOptionReader::check_files() const {
  if (!job_.json.empty()) check_can_create("--json", job_.json);
  if (!job_.trace.empty()) check_can_create("--trace", job_.trace);
  std::error_code code;
  if (!job_.resume.empty() && !std::filesystem::is_directory(job_.resume, code))
    throw ConfigError(
        fmt::format("--resume {}: there is no such folder; expected the --out of an "
                    "earlier run",
                    job_.resume));
  if (job_.checkpoint_every > 0 && job_.out.empty())
    throw ConfigError(
        fmt::format("--checkpoint-every {}: checkpoints need a folder; expected --out DIR",
                    job_.checkpoint_every));
  if (job_.out.empty()) return;
  std::filesystem::create_directories(job_.out, code);
  if (code)
    throw ConfigError(
        fmt::format("--out {}: cannot make the folder: {}", job_.out, code.message()));
  if (access(job_.out.c_str(), W_OK | X_OK) != 0)
    throw ConfigError(
        fmt::format("--out {}: cannot write there: {}", job_.out, std::strerror(errno)));
}

void TrainOptionReader::fit_to(TrainOptions& options, int size, const std::string& launcher) const {
  if (!launcher.empty() && options_.given("--workers") && options.workers != size)
    throw ConfigError(fmt::format("--workers {}: {} has started {}; leave the option out",
                                  options.workers, launcher, size));
  options.workers = size;
  if (!options.emulate_speeds.empty() &&
      options.emulate_speeds.size() != static_cast<std::size_t>(size))
    throw ConfigError(fmt::format("--emulate-speeds {}: {} speeds, {} workers; expected one each",
                                  speeds_, options.emulate_speeds.size(), size));
}

}  // namespace skein
