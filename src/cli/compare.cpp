// skein compare: several strategies on one job, in turn, and what can be said about them.
#include <fmt/format.h>

#include <csignal>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <optional>

#include "cli/commands.h"
#include "cli/compare_options.h"
#include "cli/compare_report.h"
#include "cli/compare_saved.h"
#include "cli/json_output.h"
#include "cli/live_page.h"
#include "cli/status_line.h"
#include "compare/comparison.h"
#include "compare/runner.h"
#include "compare/table.h"
#include "core/atomic_file.h"
#include "launch/environment.h"
#include "page/assets.h"
#include "skein/error.h"

namespace skein {
namespace {

// By rename: whoever looks sees the one or the other.
void point_link(const std::filesystem::path& link, const std::filesystem::path& folder) {
  const std::filesystem::path fresh = link.string() + ".tmp";
  std::filesystem::remove(fresh);
  std::filesystem::create_directory_symlink(std::filesystem::absolute(folder), fresh);
  std::filesystem::rename(fresh, link);
}

class Compare {
 public:
  explicit Compare(CLI::App& command) : reader_(command) {}

  int operator()(const Invocation& invocation) {
    if (const auto placement = detect(process_environment))
      throw ConfigError(fmt::format(
          "compare starts its own workers, and {} has started this process as one; run it outside",
          placement->launcher));
    auto request = reader_.read(invocation);
    const JsonOutput json(reader_.options(), "compare");
    StatusLine status(reader_.options().quiet());
    // One page for all runs: it shows the folder that this link names, whichever that is.
    std::optional<LivePage> page;
    if (!request.page.empty()) page.emplace(request.page, request.plan.out / compare::kCurrent);
    request.comparison.running = true;
    save(request);
    if (!reader_.options().quiet() && plots_missing().empty() && appears_by_rename(request.report))
      fmt::print(stderr, "{} shows what is known while runs are made\n", request.report);
    const int stopped = run(request, status);
    request.comparison.running = false;
    save(request);
    print_end(request, stopped);
    json.write(compare::to_json(request.comparison), request.comparison.seed,
               reader_.options().config());
    if (stopped != 0) return 128 + stopped;
    return request.comparison.failed() ? 1 : 0;
  }

 private:
  int run(CompareOptionReader::Request& request, StatusLine& status) const {
    compare::Comparison& comparison = request.comparison;
    const compare::LiveTable table(comparison);
    const bool quiet = reader_.options().quiet();
    std::string label;
    bool headed = false;
    compare::RunnerEvents events;
    events.begin = [&](int number, int of, const std::string& name, const std::string& folder) {
      // Whoever watches this link, here or by skein watch, sees the run that goes on.
      if (comparison.kind == "train") point_link(request.plan.out / compare::kCurrent, folder);
      label = fmt::format("{} of {}: {}", number, of, name);
      if (!quiet && !status.on()) fmt::print(stderr, "{}\n", label);
    };
    events.tick = [&](double seconds, const std::string& folder) {
      if (!status.on()) return;
      const auto accuracy = compare::latest_accuracy(folder);
      status.say(fmt::format("{}: {:.0f} s{}", label, seconds,
                             accuracy ? fmt::format(", accuracy {:.1f} %", 100 * *accuracy) : ""));
    };
    events.end = [&](const compare::Row& row, const compare::Run& run) {
      save(request);
      status.clear();
      if (run.round == 0 || quiet) return;
      if (!std::exchange(headed, true)) fmt::print("{}", table.head());
      fmt::print("{}", table.line(row.entry.name, run));
      std::fflush(stdout);
    };
    SignalQueue signals;
    return compare::run_all(request.plan, comparison, signals, events);
  }

  // After every run: whoever looks sees what is known so far. A report that goes to a pipe or a
  // device is written there once, at the end.
  void save(const CompareOptionReader::Request& request) const {
    nlohmann::json figures = compare::to_json(request.comparison);
    figures["command"] = "compare";
    figures["version"] = SKEIN_VERSION;
    figures["seed"] = request.comparison.seed;
    write_whole(request.plan.out / "compare.json",
                figures.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n");
    if (!request.comparison.running || appears_by_rename(request.report))
      write_report(request.report, {{"comparisons", {figures}}});
  }

  void print_end(const CompareOptionReader::Request& request, int stopped) const {
    const compare::Comparison& comparison = request.comparison;
    const bool live = !reader_.options().quiet();
    if (stopped != 0) fmt::print(stderr, "stopped; this is what is known\n");
    if (const std::string searched = compare::search_table(comparison); !searched.empty())
      fmt::print("\n{}", searched);
    if (!live || comparison.rounds > 1)
      fmt::print("{}{}", live ? "\n" : "", compare::median_table(comparison));
    const compare::Claims claims = compare::claims_of(comparison);
    if (!claims.sentences.empty()) fmt::print("\n");
    for (const std::string& sentence : claims.sentences) fmt::print("- {}\n", sentence);
    if (!claims.recommendation.empty()) fmt::print("\n{}\n", claims.recommendation);
    fmt::print("\n{} has every run\n", request.plan.out.string());
    if (!appears_by_rename(request.report)) return;
    if (plots_missing().empty())
      fmt::print("{} has all of it with plots\n", request.report);
    else
      fmt::print("no report: {}\n", plots_missing());
  }

  CompareOptionReader reader_;
};

}  // namespace

void add_compare(CLI::App& app, Invocation& invocation) {
  CLI::App& command =
      *app.add_subcommand("compare", "several strategies on one job: a table and a report");
  command.footer(
      "Every other option is given to each run: those of skein train, or with --simulate those of "
      "skein simulate.\n\n"
      "Examples:\n"
      "  skein compare --strategies 'allreduce, dear, lasgd:lr=0.02' --workers 4 --model cnn "
      "--emulate-link 200mbit --target-accuracy 0.95\n"
      "  skein compare --simulate --strategies 'allreduce, dear' --workers 64 --network 10gbe "
      "--profile resnet50\n"
      "  skein compare --config examples/demo/unequal-machines.toml --rounds 3");
  add_compare_saved(command, invocation);
  auto compare = std::make_shared<Compare>(command);
  command.callback([compare, &command, &invocation] {
    if (!command.get_subcommands().empty()) return;  // which has left its own action
    invocation.action = [compare, &invocation] { return (*compare)(invocation); };
  });
}

}  // namespace skein
