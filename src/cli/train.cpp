// skein train: as launcher of worker processes, or as one of them.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <memory>
#include <optional>

#include "cli/commands.h"
#include "cli/live_page.h"
#include "cli/train_options.h"
#include "cli/with_torch.h"
#include "cli/workers.h"
#include "keep/run_folder.h"
#include "launch/shell.h"
#include "strategy/registry.h"
#include "train/train.h"

namespace skein {
namespace {

// The same command with --resume, once there is something to resume.
std::string resume_command(const Invocation& invocation, const TrainOptions& options) {
  std::error_code ignored;
  const auto folder = std::filesystem::path(options.out) / "checkpoints";
  if (options.out.empty() || !std::filesystem::is_directory(folder, ignored) ||
      std::filesystem::is_empty(folder, ignored))
    return "";
  std::string out = "skein";
  for (const std::string& word :
       without_options(invocation.arguments, {"--resume"}, {"--overwrite"}))
    out += " " + shell_quoted(word);
  return out + " --resume " + shell_quoted(options.out);
}

int launch_workers(const Invocation& invocation, const TrainOptions& options,
                   const HostOptions& hosts, const RestartOptions& restarts) {
  if (hosts.print_commands(worker_arguments(invocation, options.credentials), options.rendezvous,
                           options.credentials))
    return 0;
  LaunchOptions launch = launch_of_self(invocation, options.workers, options.threads);
  launch.go_on = traits_of(options.strategy).survives_losses;
  launch.stopped_code = kStoppedCode;
  launch.meeting_place = options.fabric == "tcp";
  hosts.place(launch, options.rendezvous, true);
  hand_over(options.credentials, launch);
  launch.stopped_limit =
      std::min(launch.stopped_limit,
               std::chrono::duration_cast<std::chrono::milliseconds>(options.deadline));
  // Held until the run has ended: logs and events are the launcher's.
  FolderLock lock;
  if (!options.out.empty()) {
    lock = take_folder(options.out, launch_lock(options.out));
    check_may_write(options.out, options.resume, options.overwrite);
  }
  if (!options.out.empty()) launch.log_dir = options.out + "/logs";
  if (options.overwrite && !options.resume_auto) remove_logs(options.out);
  launch.resume_hint = [&] { return resume_command(invocation, options); };
  Watchers watchers(options, launch);
  const int code = restarts.most > 0 ? launch_with_restarts(invocation, options, launch, restarts)
                                     : skein::launch(launch);
  watchers.ended(code);
  return code;
}

}  // namespace

void add_train(CLI::App& app, Invocation& invocation) {
  CLI::App& command = *app.add_subcommand("train", "train a model with a strategy");
  command.footer(
      "Settings (--set), with their defaults:\n" + strategy_settings_help() +
      "  model.width=N  model.depth=N (mlp, gpt)  model.width=N (cnn, resnet18)\n"
      "    model.heads=N  model.tied=true|false (gpt)\n"
      "  data.train=N  data.test=N  data.seed=N|run (glyphs)  data.size=N (images)  data.context=N "
      "(text)\n\n"
      "Example: skein train --workers 4 --strategy allreduce --data glyphs --model cnn --out "
      "out/first\n"
      "         skein train --hosts a,b:4,me@c --strategy dear --data glyphs --model cnn\n"
      "         skein train --device cuda --precision bf16 --model resnet18 --data cifar10:DIR");
  auto reader = std::make_shared<TrainOptionReader>(command);
  command.callback([reader, &invocation] {
    invocation.action = [reader, &invocation] {
      const auto placement = detect(process_environment);
      if (placement) with_torch();
      TrainOptions options = reader->read(placement);
      if (!placement)
        return launch_workers(invocation, options, reader->hosts(), reader->restarts());
      return run_as_worker(*placement, [&] {
        // Where nobody else could: mpirun has no page.
        std::optional<LivePage> page;
        if (placement->launcher != "skein" && placement->rank == 0 && !options.page.empty())
          page.emplace(options.page, options.out);
        return run_training(options);
      });
    };
  });
}

}  // namespace skein
