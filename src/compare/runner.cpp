#include "compare/runner.h"

#include <fmt/format.h>
#include <string.h>

#include <fstream>

#include "compare/child.h"
#include "core/atomic_file.h"

namespace skein::compare {
namespace {

using Json = nlohmann::json;

std::string folder_of(const Plan& plan, std::size_t row, int round, int number) {
  const std::string name =
      round > 0 ? fmt::format("round-{}", round) : fmt::format("trial-{}", number);
  return (plan.out / plan.rows[row].folder / name).string();
}

// A trial is as long for everybody, and has no target to stop at unless that is what counts.
void shorten(Job& job, const Plan& plan) {
  for (const char* name : {"samples", "epochs", "iterations", "time"}) drop(job, name);
  if (plan.judged_by == JudgedBy::accuracy) drop(job, "target-accuracy");
  put(job, {"samples", std::to_string(plan.search_samples), false});
}

std::string reason(const ChildEnd& end) {
  if (!end.last_words.empty()) return end.last_words;
  if (end.signal != 0)
    return fmt::format("ended by signal {} ({})", end.signal, strsignal(end.signal));
  return fmt::format("ended with exit code {} and said nothing", end.code);
}

class Runner {
 public:
  Runner(const Plan& plan, Comparison& comparison, SignalQueue& signals, const RunnerEvents& events)
      : plan_(plan), comparison_(comparison), signals_(signals), events_(events) {}

  int run() {
    count();
    if (!plan_.axes.empty()) search();
    for (int round = 1; round <= comparison_.rounds && stopped_ == 0; ++round)
      for (std::size_t row = 0; row < plan_.rows.size() && stopped_ == 0; ++row)
        measure(row, round);
    comparison_.complete = stopped_ == 0;
    return stopped_;
  }

 private:
  void count() {
    const auto rows = static_cast<int>(plan_.rows.size());
    of_ = rows * comparison_.rounds;
    if (!plan_.axes.empty()) of_ += rows * static_cast<int>(trial_options(plan_.axes, 1).size());
  }

  void search() {
    std::vector<std::vector<Job>> tried;
    tried.reserve(plan_.rows.size());
    for (std::size_t row = 0; row < plan_.rows.size(); ++row) {
      tried.push_back(trial_options(plan_.axes, plan_.rows[row].lr));
      Search& search = comparison_.rows[row].search.emplace();
      search.by = plan_.judged_by;
      search.samples_each = plan_.search_samples;
    }
    for (std::size_t number = 0; number < tried.front().size(); ++number)
      for (std::size_t row = 0; row < plan_.rows.size(); ++row) {
        const Job& options = tried[row][number];
        const auto run = make(row, 0, options, static_cast<int>(number) + 1);
        if (!run) return;
        Search& search = *comparison_.rows[row].search;
        search.trials.push_back({options, *run});
        search.chosen = choose(search.trials, search.by);
        events_.end(comparison_.rows[row], *run);
      }
  }

  void measure(std::size_t row, int round) {
    const Row& known = comparison_.rows[row];
    const Job chosen = known.search ? known.search->options() : Job();
    const auto run = make(row, round, chosen, 0);
    if (!run) return;
    comparison_.rows[row].runs.push_back(*run);
    if (round == 1 && plan_.timelines && run->ok())
      comparison_.rows[row].timeline =
          read_timeline(std::filesystem::path(run->folder) / "trace.json");
    events_.end(comparison_.rows[row], *run);
  }

  // Nothing: it was stopped.
  std::optional<Run> make(std::size_t row, int round, const Job& options, int number) {
    const std::string& name = comparison_.rows[row].entry.name;
    const std::string label = round > 0 && comparison_.rounds == 1 ? name
                              : round > 0 ? fmt::format("{}, round {}", name, round)
                                          : fmt::format("{}, trial {}", name, number);
    Run run;
    run.round = round;
    run.folder = folder_of(plan_, row, round, number);
    events_.begin(++done_, of_, label, run.folder);
    run.seed = comparison_.seed +
               static_cast<std::uint64_t>((round > 0 ? round : comparison_.rounds + 1) - 1);
    auto arguments = run_arguments(plan_, comparison_, row, round, options, number);
    run.command = command_text(plan_.shown_as, arguments);
    if (!(plan_.reuse && reused(run)) && !start(run, std::move(arguments))) return std::nullopt;
    if (run.ok()) read_results(run, comparison_.rows[row].summed_speed);
    return run;
  }

  static std::filesystem::path record_of(const Run& run) {
    return std::filesystem::path(run.folder) / "compared.json";
  }

  static bool reused(Run& run) {
    std::ifstream in(record_of(run));
    const Json record = Json::parse(in, nullptr, false);
    if (!record.is_object() || record.value("command", "") != run.command ||
        record.value("exit_code", 1) != 0)
      return false;
    run.wall_seconds = record.value("wall_seconds", 0.0);
    run.reused = true;
    return true;
  }

  bool start(Run& run, std::vector<std::string> arguments) {
    std::filesystem::create_directories(run.folder);
    std::filesystem::remove(record_of(run));
    std::filesystem::remove(std::filesystem::path(run.folder) / "result.json");
    arguments.insert(arguments.begin(), plan_.program);
    const ChildEnd end =
        run_child(arguments, std::filesystem::path(run.folder) / "output.txt", signals_,
                  [&](double seconds) { events_.tick(seconds, run.folder); });
    if (end.stopped_by != 0) {
      stopped_ = end.stopped_by;
      return false;
    }
    run.code = end.signal != 0 ? 128 + end.signal : end.code;
    run.wall_seconds = end.seconds;
    if (run.code != 0) run.error = reason(end);
    const Json record{
        {"command", run.command}, {"exit_code", run.code}, {"wall_seconds", run.wall_seconds}};
    write_whole(record_of(run), record.dump(2, ' ', false, Json::error_handler_t::replace) + "\n");
    return true;
  }

  const Plan& plan_;
  Comparison& comparison_;
  SignalQueue& signals_;
  const RunnerEvents& events_;
  int done_ = 0, of_ = 0, stopped_ = 0;
};

}  // namespace

std::vector<std::string> run_arguments(const Plan& plan, const Comparison& comparison,
                                       std::size_t row, int round, const Job& trial, int number) {
  Job job = changed(plan.rows[row].job, trial);
  if (round == 0) shorten(job, plan);
  const std::string folder = folder_of(plan, row, round, number);
  // A trial has a seed that no round has.
  const auto offset = static_cast<std::uint64_t>(round > 0 ? round - 1 : comparison.rounds);
  put(job, {"seed", std::to_string(comparison.seed + offset), false});
  put(job, {"quiet", "true", true});
  if (comparison.kind == "train") {
    put(job, {"out", folder, false});
    put(job, {"overwrite", "true", true});
    if (plan.watched) put(job, {"timeline", "true", true});
  }
  put(job, {"json", folder + "/result.json", false});
  if (plan.timelines && round == 1) put(job, {"trace", folder + "/trace.json", false});
  auto out = words(job);
  out.insert(out.begin(), comparison.kind);
  return out;
}

int run_all(const Plan& plan, Comparison& comparison, SignalQueue& signals,
            const RunnerEvents& events) {
  return Runner(plan, comparison, signals, events).run();
}

}  // namespace skein::compare
