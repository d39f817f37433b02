// skein train: as launcher of worker processes, or as one of them.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <memory>
#include <optional>

#include "cli/commands.h"
#include "cli/train_options.h"
#include "cli/workers.h"
#include "keep/run_folder.h"
#include "strategy/registry.h"
#include "train/train.h"

namespace skein {
namespace {

// As a shell would need it typed.
std::string quoted(const std::string& word) {
  const auto plain = [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) != 0 ||
           std::string_view("-_./:=,+@%").find(c) != std::string_view::npos;
  };
  if (!word.empty() && std::all_of(word.begin(), word.end(), plain)) return word;
  std::string out = "'";
  for (const char c : word) out += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return out + "'";
}

// The same command with --resume, once there is something to resume.
std::string resume_command(const Invocation& invocation, const TrainOptions& options) {
  std::error_code ignored;
  const auto folder = std::filesystem::path(options.out) / "checkpoints";
  if (options.out.empty() || !std::filesystem::is_directory(folder, ignored) ||
      std::filesystem::is_empty(folder, ignored))
    return "";
  std::string out = "skein";
  for (std::size_t i = 0; i < invocation.arguments.size(); ++i) {
    const std::string& word = invocation.arguments[i];
    if (word == "--resume") ++i;  // and what follows it
    if (word == "--resume" || word.starts_with("--resume=") || word == "--overwrite") continue;
    out += " " + quoted(word);
  }
  return out + " --resume " + quoted(options.out);
}

int launch_workers(const Invocation& invocation, const TrainOptions& options) {
  LaunchOptions launch = launch_of_self(invocation, options.workers, options.threads);
  launch.go_on = strategy_gossips(options.strategy);  // they survive losses
  launch.meeting_place = options.fabric == "tcp";
  launch.stopped_limit =
      std::min(launch.stopped_limit,
               std::chrono::duration_cast<std::chrono::milliseconds>(options.deadline));
  if (!options.out.empty()) launch.log_dir = options.out + "/logs";
  if (options.overwrite) remove_logs(options.out);
  launch.resume_hint = [&] { return resume_command(invocation, options); };
  return skein::launch(launch);
}

}  // namespace

void add_train(CLI::App& app, Invocation& invocation) {
  CLI::App& command = *app.add_subcommand("train", "train a model with a strategy");
  command.footer(
      "Settings (--set):\n"
      "  strategy.fusion=auto|none|SIZE  strategy.balance=true|false  strategy.overlap=true|false\n"
      "    strategy.reorder=true|false (allreduce, dear)\n"
      "  strategy.fusion_start=SIZE  strategy.trial_steps=N (dear, fusion=auto)\n"
      "  strategy.lr_scaling=none|linear|sqrt  strategy.reference_batch=N\n"
      "    strategy.warmup_rounds=N  strategy.max_micro_batches=N (abs)\n"
      "  strategy.period=N (local, lasgd)  strategy.period_ms=N  strategy.warmup=SAMPLES  "
      "strategy.average_momentum=true (lasgd)\n"
      "  strategy.schedule=poisson|fixed  strategy.max_lag=N  strategy.momentum=local|averaged\n"
      "    (gossip, acid)  strategy.strength=X (acid)\n"
      "  model.width=N  model.depth=N (mlp, gpt)  model.width=N (cnn)  model.heads=N  "
      "model.tied=true|false (gpt)\n"
      "  data.train=N  data.test=N  data.seed=N|run (glyphs)  data.size=N (images)  data.context=N "
      "(text)\n\n"
      "Example: skein train --workers 4 --strategy allreduce --data glyphs --model cnn --out "
      "out/first");
  auto reader = std::make_shared<TrainOptionReader>(command);
  command.callback([reader, &invocation] {
    invocation.action = [reader, &invocation] {
      TrainOptions options = reader->read();
      const auto placement = detect(process_environment);
      reader->fit_to(options, placement ? placement->size : options.workers,
                     placement ? placement->launcher : "");
      if (!placement) return launch_workers(invocation, options);
      return run_as_worker(*placement, [&] { return run_training(options); });
    };
  });
}

}  // namespace skein
