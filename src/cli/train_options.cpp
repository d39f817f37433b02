#include "cli/train_options.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>

#include "cli/json_output.h"
#include "cli/live_page.h"
#include "fabric/fabric.h"
#include "keep/checkpoint_files.h"
#include "keep/run_folder.h"
#include "observe/json_text.h"
#include "page/address.h"
#include "skein/error.h"
#include "strategy/registry.h"
#include "train/gpus.h"
#include "train/optimizer.h"

namespace skein {

TrainOptionReader::TrainOptionReader(CLI::App& command)
    : options_(command), shared_(options_, job_) {
  declare_job();
  declare_workers();
  declare_computation();
  declare_length();
  declare_optimizer();
  declare_files();
  declare_emulation();
  declare_reports();
  options_.declare_common();
}

void TrainOptionReader::declare_job() {
  options_.group("The job");
  shared_.declare_strategy();
  shared_.declare_model();
  options_.text("--data-split", job_.data_split, "HOW",
                "workers at their own pace: own (each shuffles all the data) or once (each sample "
                "once an epoch)");
}

void TrainOptionReader::declare_workers() {
  options_.group("Workers");
  job_.workers = 0;  // its default depends on the GPUs
  options_.integer("--workers", job_.workers, 1, kMostWorkersOfAHost, "N",
                   "worker processes on this host; one per GPU, or one, unless given (under "
                   "torchrun, mpirun, srun: theirs)");
  hosts_.declare(options_);
  network_.declare(options_);
  options_.integer("--threads", job_.threads, 1, 1024, "N", "threads of each worker");
  options_.duration("--deadline", job_.deadline, "longest silence of another worker");
  options_.integer("--restarts", restarts_.most, 1, 1'000'000, "K",
                   "start anew from the last checkpoint when a worker is lost, K times at most");
  options_.integer("--min-workers", restarts_.min_workers, 1, kMostWorkersOfARun, "M",
                   "--restarts: leave out hosts that are gone while M workers are left");
}

void TrainOptionReader::declare_computation() {
  options_.group("Computation");
  options_.text(
      "--device", job_.device, "WHERE",
      "cpu, cuda (a GPU of each worker's own as far as there are), cuda:K, or auto (cuda, "
      "else cpu)");
  options_.choice("--precision", job_.precision, {"f32", "bf16"},
                  "of forward and loss; parameters are float32 in any case");
  options_.choice("--tf32", job_.tf32, {"default", "on", "off"},
                  "may float32 products on GPUs be rounded; default: torch's own, convolutions");
  options_.choice("--channels-last", job_.channels_last, {"auto", "on", "off"},
                  "images in that memory format; auto: convolutions in bf16 on GPUs");
  options_.flag("--deterministic", job_.deterministic,
                "the same bits from the same seed on GPUs, too (slower)");
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
  shared_.declare_optimizer();
  options_.flag("--no-decay-1d", no_decay_1d_, "no decay on biases and other 1-D tensors");
  options_.text("--groups", job_.groups, "GROUPS",
                "parameters by name with settings of their own: "
                "'head.*:factor=10,weight-decay=0; words.*:frozen=true'");
}

void TrainOptionReader::declare_files() {
  options_.group("Files");
  options_.text("--out", job_.out, "DIR", "keep metrics, model, checkpoints and logs here");
  options_.text("--resume", job_.resume, "DIR",
                "continue the run that has this --out; auto: the one in --out, or begin it");
  options_.flag("--overwrite", job_.overwrite, "remove another run that --out holds");
  options_.integer("--checkpoint-every", job_.checkpoint_every, 1, "SAMPLES",
                   "save a checkpoint each time so many samples are done");
  options_.integer("--keep-checkpoints", job_.keep_checkpoints, 1, 1'000'000, "N",
                   "how many of the newest to keep");
  options_.document("--trace", job_.trace, "FILE",
                    "write a trace for Perfetto or chrome://tracing");
}

void TrainOptionReader::declare_emulation() {
  options_.group("Emulation: one host as a bad cluster");
  shared_.declare_speeds();
  shared_.declare_link();
}

void TrainOptionReader::declare_reports() {
  options_.group("Reports");
  options_.integer("--eval-every", job_.eval_every, 1, "SAMPLES",
                   "evaluate each time so many samples are done (else each epoch)");
  options_.integer("--bn-recompute", job_.bn_recompute, 1, 1 << 20, "K",
                   "evaluate and save with batch-norm statistics of K new batches of each worker");
  options_.integer("--log-every", job_.log_every, 1, "STEPS",
                   "a line each time so many steps are done");
  options_.text("--page", job_.page, "PORT",
                "show the run in a browser while it goes on; HOST:PORT: to other hosts, too");
  options_.flag("--timeline", job_.timeline,
                "keep in --out what every worker does when, as --page does, for skein watch");
  options_.text("--tensorboard", job_.tensorboard, "DIR", "write event files for TensorBoard");
  options_.flag("--verify", job_.verify,
                "check after every step that all replicas are bit-equal (slow: all wait for it)");
}

TrainOptions TrainOptionReader::read(const std::optional<Placement>& placement) {
  options_.read_config_file();
  options_.open_documents(placement.has_value());
  job_.decay_1d = !no_decay_1d_;
  parse_parameter_groups(job_.groups);
  read_hosts(placement);
  job_.fabric = network_.fabric;
  job_.rendezvous = network_.rendezvous;
  if (network_.between_hosts()) job_.credentials = network_.credentials();
  job_.encrypt = network_.encrypt == "on";
  job_.two_levels = network_.levels == "auto";
  check_choices();
  shared_.read(true);
  read_device(!placement && hosts_.workers() == 0);
  check_restarts(placement);
  find_run();
  check_files(placement.has_value());
  check_page(placement);
  job_.command = "train";
  job_.version = SKEIN_VERSION;
  nlohmann::json config = options_.config();
  config["lr"] = job_.learning_rate;
  config["workers"] = placement ? placement->size : job_.workers;
  job_.config_json = text_of(config);
  if (!placement) network_.check_start(job_.workers);
  fit_to(placement ? placement->size : job_.workers, placement ? placement->launcher : "");
  return job_;
}

// A worker that was started on its host has the launcher's options, but not what they name: the
// launcher has told it where to meet.
void TrainOptionReader::read_hosts(const std::optional<Placement>& placement) {
  hosts_.choose_fabric(options_, network_.fabric);
  if (placement) {
    hosts_.check_worker(options_, *placement);
    if (hosts_.given(options_)) network_.rendezvous.clear();
    return;
  }
  hosts_.read(options_, network_.given.secret);
  if (hosts_.workers() == 0) return;
  if (options_.given("--workers") && job_.workers != hosts_.workers())
    throw ConfigError(fmt::format("--workers {}: the hosts have {}; leave the option out",
                                  job_.workers, hosts_.workers()));
  job_.workers = hosts_.workers();
}

// Whoever starts workers here must know of this host's GPUs, but not touch them itself.
void TrainOptionReader::read_device(bool launches) {
  const DeviceChoice choice = parse_device(job_.device);
  if (choice.kind == DeviceChoice::cpu && options_.given("--tf32"))
    throw ConfigError(
        fmt::format("--tf32 {}: only GPUs have it; expected --device cuda or auto", job_.tf32));
  if (choice.kind == DeviceChoice::cpu && job_.fabric == "nccl")
    throw ConfigError("--fabric nccl: NCCL joins GPUs; expected --device cuda or auto");
  const bool many = choice.kind != DeviceChoice::cpu && choice.index < 0;
  const bool count = many && !options_.given("--workers");
  if (launches && (count || choice.kind == DeviceChoice::cuda)) {
    const Gpus gpus = count_gpus_in_a_child();
    gpu_of_worker(choice, gpus, 0);
    if (count) job_.workers = gpus.count;
  }
  job_.workers = std::max(1, job_.workers);
}

void TrainOptionReader::check_choices() const {
  network_.check(options_);
  if (job_.data_split != "own" && job_.data_split != "once")
    throw ConfigError(fmt::format("--data-split {}: there is no such split; expected own or once",
                                  job_.data_split));
  if (options_.given("--samples") && options_.given("--epochs"))
    throw ConfigError(fmt::format("--samples {} and --epochs {}: expected one of the two",
                                  job_.samples, job_.epochs));
}

void TrainOptionReader::check_restarts(const std::optional<Placement>& placement) {
  if (placement && placement->launcher == "skein")
    return read_restarts(process_environment("SKEIN_RESTARTS"), job_);
  const auto refuse = [](const char* option, int value, const std::string& why) {
    throw ConfigError(fmt::format("{} {}: {}", option, value, why));
  };
  const int most = restarts_.most, least = restarts_.min_workers;
  if (least > 0 && (most == 0 || hosts_.workers() == 0))
    refuse("--min-workers", least,
           "it is for hosts that are lost; expected --restarts and --hosts");
  if (most == 0) return;
  if (placement)
    refuse("--restarts", most,
           placement->launcher +
               " has started this worker, and would have to start it again; "
               "leave the option out");
  if (traits_of(job_.strategy).survives_losses)
    refuse("--restarts", most,
           job_.strategy + " goes on without lost workers; leave the option out");
  if (job_.out.empty() || job_.checkpoint_every == 0)
    refuse("--restarts", most,
           "there would be no checkpoint to start from; expected --out DIR and "
           "--checkpoint-every SAMPLES");
  if (least > hosts_.workers())
    refuse("--min-workers", least, fmt::format("the hosts have {}", hosts_.workers()));
  if (least > 0 && least < hosts_.workers() && !job_.emulate_speeds.empty())
    refuse("--min-workers", least, "--emulate-speeds says the speed of each of all workers");
}

// --resume auto: what is started again and again does not know how far it came.
void TrainOptionReader::find_run() {
  if (job_.resume != "auto") return;
  if (job_.out.empty())
    throw ConfigError("--resume auto: there is no folder to look in; expected --out DIR");
  if (options_.given("--overwrite"))
    throw ConfigError("--overwrite with --resume auto: expected one of the two");
  job_.resume_auto = true;
  job_.resume = checkpoints_in(job_.out).empty() ? "" : job_.out;
  if (!job_.resume.empty()) return;
  std::error_code none;
  if (std::filesystem::exists(std::filesystem::path(job_.out) / "model.safetensors", none))
    throw ConfigError(fmt::format(
        "--resume auto: {} holds a model and no checkpoint; expected its checkpoints, or another "
        "folder",
        job_.out));
  job_.overwrite = true;  // what a start that came to no checkpoint has left
}

// The page shows a folder: the run's own, or one that a launcher of one host makes for it.
void TrainOptionReader::check_page(const std::optional<Placement>& placement) {
  if (job_.timeline && job_.page.empty() && job_.out.empty())
    throw ConfigError("--timeline: there is no folder for it; expected --out DIR");
  if (job_.page.empty()) return;
  parse_page_address("--page", job_.page);
  job_.timeline = true;
  const bool launched = placement && placement->launcher == "skein";
  if (!job_.out.empty()) return;
  if (hosts_.given(options_) || (placement && !launched))
    throw ConfigError(fmt::format(
        "--page {}: workers {} have no folder in common that it could show; expected --out DIR",
        job_.page, placement ? "that " + placement->launcher + " started" : "of several hosts"));
  if (const char* folder = process_environment(kObservedVariable); launched && folder != nullptr)
    job_.observed = folder;
}

// Whether a run writes to --out now is for the launcher to say, and then for the worker that takes
// it: the workers of an attempt before this one may be about to end still.
void TrainOptionReader::check_files(bool as_worker) const {
  if (!job_.tensorboard.empty()) prepare_file("--tensorboard", job_.tensorboard + "/events");
  if (!job_.json.empty()) prepare_file("--json", job_.json);
  if (!job_.trace.empty()) prepare_file("--trace", job_.trace);
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
  if (job_.overwrite && job_.out.empty())
    throw ConfigError("--overwrite: there is nothing to remove; expected --out DIR");
  if (job_.out.empty()) return;
  (as_worker ? check_contents : check_may_write)(job_.out, job_.resume, job_.overwrite);
  std::filesystem::create_directories(job_.out, code);
  if (code)
    throw ConfigError(
        fmt::format("--out {}: cannot make the folder: {}", job_.out, code.message()));
  if (access(job_.out.c_str(), W_OK | X_OK) != 0)
    throw ConfigError(
        fmt::format("--out {}: cannot write there: {}", job_.out, std::strerror(errno)));
}

void TrainOptionReader::fit_to(int size, const std::string& launcher) {
  const int expected = job_.batch_workers > 0 ? job_.batch_workers : size;
  if (!launcher.empty() && options_.given("--workers") && job_.workers != expected)
    throw ConfigError(fmt::format("--workers {}: {} has started {}; leave the option out",
                                  job_.workers, launcher, size));
  job_.workers = size;
  if (!job_.emulate_speeds.empty() && job_.emulate_speeds.size() != static_cast<std::size_t>(size))
    throw ConfigError(fmt::format("--emulate-speeds {}: {} speeds, {} workers; expected one each",
                                  fmt::join(job_.emulate_speeds, ","), job_.emulate_speeds.size(),
                                  size));
}

}  // namespace skein
