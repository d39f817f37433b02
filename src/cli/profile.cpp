// skein profile: how long a model computes, layer by layer, for the virtual cluster.
#include <fmt/format.h>

#include <algorithm>
#include <memory>

#include "cli/commands.h"
#include "cli/job_options.h"
#include "cli/json_output.h"
#include "cli/with_torch.h"
#include "cli/workers.h"
#include "core/atomic_file.h"
#include "core/units.h"
#include "sim/profile.h"
#include "skein/error.h"
#include "train/virtual_cluster.h"

namespace skein {
namespace {

constexpr int kMostProfiledWorkers = 1024;
constexpr std::size_t kShownLayers = 10;

// Of the slowest worker for the others: they compute the same, but share the machine.
constexpr std::chrono::minutes kPatience(10);

std::string print(const sim::Profile& profile) {
  const Duration total = profile.forward() + profile.backward();
  std::string out = fmt::format("{}, batch {}\n{}\n", profile.name, profile.batch, profile.source);
  const auto line = [&](const char* what, Duration time) {
    out += fmt::format("{:<12}{:>12.3f} ms\n", what, milliseconds(time));
  };
  line("forward", profile.forward());
  line("backward", profile.backward());
  line("update", profile.update);
  out += fmt::format("{:<12}{:>12} in {} tensors\n\n", "parameters", profile.parameters(),
                     profile.tensors());

  std::vector<const sim::Layer*> layers;
  for (const sim::Layer& layer : profile.layers) layers.push_back(&layer);
  std::stable_sort(layers.begin(), layers.end(), [](const sim::Layer* a, const sim::Layer* b) {
    return a->forward + a->backward > b->forward + b->backward;
  });
  layers.resize(std::min(layers.size(), kShownLayers));
  out += fmt::format("{:<44}{:>12}{:>12}{:>12}{:>8}\n", "most expensive layers", "parameters",
                     "forward ms", "backward ms", "share");
  for (const sim::Layer* layer : layers) {
    std::int64_t parameters = 0;
    for (const std::int64_t tensor : layer->parameters) parameters += tensor;
    const Duration both = layer->forward + layer->backward;
    out += fmt::format("{:<44}{:>12}{:>12.3f}{:>12.3f}{:>6.1f} %\n", layer->name, parameters,
                       milliseconds(layer->forward), milliseconds(layer->backward),
                       total.count() > 0 ? 100 * (seconds(both) / seconds(total)) : 0);
  }
  if (layers.size() < profile.layers.size())
    out += fmt::format("and {} more\n", profile.layers.size() - layers.size());
  return out;
}

nlohmann::json figures(const sim::Profile& profile) {
  nlohmann::json layers = nlohmann::json::array();
  for (const sim::Layer& layer : profile.layers)
    layers.push_back({{"name", layer.name},
                      {"parameters", layer.parameters},
                      {"forward_ms", milliseconds(layer.forward)},
                      {"backward_ms", milliseconds(layer.backward)}});
  return {{"name", profile.name},
          {"source", profile.source},
          {"batch", profile.batch},
          {"forward_ms", milliseconds(profile.forward())},
          {"backward_ms", milliseconds(profile.backward())},
          {"update_ms", milliseconds(profile.update)},
          {"parameters", profile.parameters()},
          {"tensors", profile.tensors()},
          {"layers", layers}};
}

class ProfileCommand {
 public:
  explicit ProfileCommand(CLI::App& command) : options_(command) {
    TrainOptions& job = measured_.job;
    options_.group("What is measured");
    options_.text("--model", job.model, "NAME", "mlp, cnn, resnet18, resnet50, gpt");
    options_.text("--data", job.data, "SET",
                  "glyphs, mnist:DIR, cifar10:DIR, images:DIR, text:FILE");
    options_.repeated("--set", sets_, "PART.KEY=VALUE",
                      "a setting of model or data, such as model.width=64");
    options_.integer("--batch", job.batch, 1, "N", "samples per iteration", 1 << 24);
    options_.choice("--optimizer", job.optimizer, {"sgd", "adamw"}, "whose update is measured");
    options_.group("How");
    options_.integer("-n,--workers", job.workers, 1, kMostProfiledWorkers, "N",
                     "processes that compute at the same time on this host");
    options_.integer("--threads", job.threads, 1, 1024, "N", "threads of each worker");
    job.device = "cpu";
    options_.text("--device", job.device, "WHERE",
                  "cpu, cuda (a GPU of each worker's own as far as there are), cuda:K, or auto");
    options_.choice("--precision", job.precision, {"f32", "bf16"}, "of forward and loss");
    options_.choice("--tf32", job.tf32, {"default", "on", "off"},
                    "may float32 products on GPUs be rounded; default: torch's own");
    options_.integer("--iterations", measured_.iterations, 1, 1'000'000, "N",
                     "how many to take the medians of");
    options_.integer("--warmup", measured_.warmup, 0, 1'000'000, "N",
                     "iterations before those, which do not count");
    options_.duration("--pause", measured_.pause,
                      "idle before each update, as a run that waits for its network: caches cool");
    options_.group("Profiles");
    options_.choice("--builtin", builtin_, sim::builtin_profile_names(),
                    "show this profile and measure nothing");
    options_.document("--out", out_, "FILE.json",
                      "write the profile, for skein simulate --profile");
    options_.declare_common();
  }

  int operator()(const Invocation& invocation) {
    options_.read_config_file();
    const auto placement = detect(process_environment);
    if (placement && builtin_.empty()) with_torch();
    const JsonOutput json(options_, "profile", placement.has_value() || !builtin_.empty());
    if (!out_.empty()) prepare_file("--out", out_);
    if (!builtin_.empty()) {
      check_nothing_to_measure();
      report(sim::find_profile(builtin_), json);
      return 0;
    }
    read_job();
    const TrainOptions& job = measured_.job;
    if (!placement) return launch(launch_of_self(invocation, job.workers, job.threads));
    if (options_.given("--workers") && placement->size != job.workers)
      throw ConfigError(fmt::format("--workers {}: {} has started {}; leave the option out",
                                    job.workers, placement->launcher, placement->size));
    return run_as_worker(*placement, [&] { return measure(json); });
  }

 private:
  void check_nothing_to_measure() const {
    for (const char* name :
         {"--model", "--data", "--set", "--batch", "--optimizer", "--workers", "--threads",
          "--device", "--precision", "--tf32", "--iterations", "--warmup", "--pause"})
      if (options_.given(name))
        throw ConfigError(fmt::format("{}: --builtin {} measures nothing; leave out one of the two",
                                      name, builtin_));
  }

  void read_job() {
    TrainOptions& job = measured_.job;
    job.seed = options_.seed();
    job.learning_rate = job.optimizer == "adamw" ? 0.001 : 0.05;
    read_settings(options_, sets_, {"model", "data"}, job);
  }

  int measure(const JsonOutput& json) const {
    World world = World::join({.patience = kPatience});
    const sim::Profile profile = measure_profile(measured_, world);
    if (world.rank() == 0) report(profile, json);
    return 0;
  }

  void report(const sim::Profile& profile, const JsonOutput& json) const {
    fmt::print("{}", print(profile));
    if (!out_.empty()) {
      sim::write_profile(out_, profile);
      if (!options_.quiet() && appears_by_rename(out_)) fmt::print("written to {}\n", out_);
    }
    json.write(figures(profile), options_.seed(), options_.config());
  }

  CommandOptions options_;
  ProfileOptions measured_;
  std::vector<std::string> sets_;
  std::string builtin_, out_;
};

}  // namespace

void add_profile(CLI::App& app, Invocation& invocation) {
  CLI::App& command = *app.add_subcommand(
      "profile", "measure how long a model computes, layer by layer, for the virtual cluster");
  command.footer(
      "Example: skein profile --model cnn --batch 32 --workers 2 --out cnn.json\n"
      "         skein profile --device cuda --model resnet18 --batch 32\n"
      "         skein profile --builtin resnet50");
  auto profile = std::make_shared<ProfileCommand>(command);
  command.callback([profile, &invocation] {
    invocation.action = [profile, &invocation] { return (*profile)(invocation); };
  });
}

}  // namespace skein
