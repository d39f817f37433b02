#include "cli/compare_options.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "cli/config.h"
#include "cli/json_output.h"
#include "cli/suggest.h"
#include "core/spec.h"
#include "keep/run_folder.h"
#include "skein/error.h"

namespace skein {
namespace {

namespace fs = std::filesystem;

// The program as it was called, so that commands in the report can be typed again.
std::string program_as_typed() {
  std::ifstream in("/proc/self/cmdline");
  std::string word;
  std::getline(in, word, '\0');
  return word.find('/') == std::string::npos ? "skein" : word;
}

std::string stripped(const std::string& text) {
  const std::size_t first = text.find_first_not_of(' ');
  return first == std::string::npos ? ""
                                    : text.substr(first, text.find_last_not_of(' ') - first + 1);
}

}  // namespace

CompareOptionReader::CompareOptionReader(CLI::App& command) : command_(command), options_(command) {
  command.allow_extras();
  declare();
  options_.declare_common();
}

void CompareOptionReader::declare() {
  options_.group("What is compared");
  options_.text("--strategies", strategies_, "ENTRIES",
                "'allreduce, allreduce:balance=true, abs:lr=0.02,batch=8': strategies, each with "
                "settings and options of its own; or [entries.NAME] in the --config file");
  options_.flag("--simulate", simulate_, "on virtual clusters: runs of skein simulate, not train");
  options_.integer("--rounds", rounds_, 1, 1000, "N",
                   "runs of each entry, in turn; 3 show how far runs differ by themselves");
  options_.text("--expect", expect_, "NAMES",
                "entries that should beat the first here; the report says whether they do");
  options_.text("--title", title_, "TEXT", "of the report");
  options_.group("A search before, the same for all");
  options_.repeated("--search", searches_, "KEY=V1,V2…",
                    "try each: lr=0.3x,1x,3x (factors of the entry's own) or momentum=0,0.5,0.9");
  options_.integer("--search-samples", search_samples_, 1, "N", "how long each trial is");
  options_.choice("--search-by", search_by_, {"accuracy", "time"},
                  "what the best trial has: the highest accuracy at equal samples, or the shortest "
                  "time to --target-accuracy");
  options_.group("Files");
  options_.text("--out", out_, "DIR", "runs, compare.json and report.html go here");
  options_.document("--report", report_, "FILE", "the report, in place of DIR/report.html");
  options_.text("--page", page_, "[HOST:]PORT", "show the run that goes on now in a browser, live");
  options_.flag("--continue", continue_, "keep runs that --out has already, by the same commands");
  options_.flag("--overwrite", overwrite_, "make the comparison anew that --out has");
  options_.flag("--no-timeline", no_timeline_, "do not trace the first round");
}

CompareOptionReader::Request CompareOptionReader::read(const Invocation& invocation) {
  Request request;
  read_jobs(invocation, request);
  check_search(request);
  read_expected(request.comparison);
  options_.open_documents(true);
  request.report = report_.empty() ? (fs::path(out_) / "report.html").string() : report_;
  check_folder();
  const bool fresh = !fs::exists(out_);
  try {
    prepare_file("--out", (fs::path(out_) / "compare.json").string());
    prepare_file("--report", request.report);
    check_runs(CompareJobs(request.comparison.kind), request);
  } catch (const ConfigError&) {
    std::error_code ignored;
    if (fresh) fs::remove_all(out_, ignored);  // there are only empty folders in it
    throw;
  }
  return request;
}

void CompareOptionReader::read_jobs(const Invocation& invocation, Request& request) {
  compare::Comparison& comparison = request.comparison;
  compare::Plan& plan = request.plan;
  std::vector<ConfigTable> tables;
  std::vector<ConfigEntry> of_runs;
  if (!options_.config_file().empty())
    for (const ConfigEntry& entry : read_config(options_.config_file(), &tables))
      if (!options_.take(entry)) of_runs.push_back(entry);
  comparison.kind = simulate_ ? "simulate" : "train";
  const CompareJobs jobs(comparison.kind);
  const auto known = jobs.known();
  const auto add = [&](compare::Job& job, const ConfigEntry& entry, bool own) {
    const std::string where = fmt::format("{}:{}", options_.config_file(), entry.line);
    if (!own && known.count(entry.key) == 0) {
      std::vector<std::string> names = option_names(command_);
      for (const auto& each : known) names.push_back(each.first);
      throw ConfigError(
          fmt::format("{}: unknown key '{}'{}", where, entry.key, did_you_mean(entry.key, names)));
    }
    compare::put(job, compare::entry_option(entry.key, entry.value, known, where));
  };
  for (const ConfigEntry& entry : of_runs) add(comparison.job, entry, false);
  comparison.job = compare::changed(comparison.job, jobs.given(command_.remaining()));
  if (compare::find(comparison.job, "strategy") != nullptr)
    throw ConfigError(
        "--strategy: each entry has its own; expected --strategies 'allreduce, dear', or none "
        "here");
  std::vector<compare::Entry> entries;
  if (!strategies_.empty()) entries = compare::parse_entries(strategies_, known);
  if (strategies_.empty())
    for (const ConfigTable& table : tables) {
      compare::Entry entry{table.name, {}};
      for (const ConfigEntry& each : table.entries) add(entry.options, each, true);
      if (compare::find(entry.options, "strategy") == nullptr)
        entry.options.insert(entry.options.begin(), {"strategy", table.name, false});
      entries.push_back(std::move(entry));
    }
  compare::check_names(entries);
  const auto folders = compare::folder_names(entries);
  for (std::size_t i = 0; i < entries.size(); ++i) {
    plan.rows.push_back({compare::changed(comparison.job, entries[i].options), folders[i], 0});
    std::stable_partition(plan.rows.back().job.begin(), plan.rows.back().job.end(),
                          [](const auto& option) { return option.name == "strategy"; });
    comparison.rows.emplace_back().entry = entries[i];
  }
  comparison.rounds = rounds_;
  comparison.seed = options_.seed();
  comparison.started = utc_now();
  comparison.title = title_;
  plan.program = fs::read_symlink("/proc/self/exe").string();
  plan.shown_as = program_as_typed();
  comparison.typed = compare::command_text(plan.shown_as, invocation.arguments);
  plan.out = out_;
  plan.reuse = continue_;
  plan.timelines = !no_timeline_;
  plan.watched = !page_.empty();
  request.page = page_;
  if (simulate_ && !page_.empty())
    throw ConfigError(fmt::format("--page {}: simulated runs have no page; leave it out", page_));
  plan.axes = compare::parse_axes(searches_);
  plan.search_samples = search_samples_;
  plan.judged_by = search_by_ == "time" ? compare::JudgedBy::time : compare::JudgedBy::accuracy;
}

void CompareOptionReader::check_search(const Request& request) const {
  const bool search = !request.plan.axes.empty();
  if (search && search_samples_ == 0)
    throw ConfigError("--search: how long is a trial? expected --search-samples N");
  for (const char* name : {"--search-samples", "--search-by"})
    if (!search && options_.given(name))
      throw ConfigError(fmt::format("{}: nothing is searched; expected --search, too", name));
}

// An earlier comparison is nobody's to lose by a slip.
void CompareOptionReader::check_folder() const {
  if (continue_ && overwrite_)
    throw ConfigError("--continue with --overwrite: expected one of the two");
  std::error_code none;
  if (fs::exists(fs::path(out_) / "compare.json", none) && !continue_ && !overwrite_)
    throw ConfigError(fmt::format(
        "--out {}: there is a comparison in it; expected --continue, --overwrite or another folder",
        out_));
}

void CompareOptionReader::check_runs(const CompareJobs& jobs, Request& request) const {
  for (std::size_t row = 0; row < request.plan.rows.size(); ++row) {
    compare::Row& known = request.comparison.rows[row];
    const auto check = [&](int round, const compare::Job& trial, int number) {
      auto words =
          compare::run_arguments(request.plan, request.comparison, row, round, trial, number);
      words.erase(words.begin());
      try {
        return jobs.check(words);
      } catch (const ConfigError& error) {
        std::string hint;
        const auto all = jobs.known();
        std::vector<std::string> names;
        for (const auto& each : all) names.push_back(each.first);
        for (const compare::JobOption& option : known.entry.options)
          if (option.name == "set" && option.value.starts_with("strategy.") && hint.empty())
            hint = did_you_mean(option.value.substr(9, option.value.find('=') - 9), names);
        throw ConfigError(fmt::format("entry '{}': {}{}", known.entry.name, error.what(), hint));
      }
    };
    const auto checked = check(1, {}, 0);
    known.strategy = checked.strategy;
    known.summed_speed = checked.summed_speed;
    request.plan.rows[row].lr = checked.learning_rate;
    request.comparison.workers = std::max(request.comparison.workers, checked.workers);
    request.comparison.target = std::max(request.comparison.target, checked.target_accuracy);
    if (request.plan.axes.empty()) continue;
    int number = 0;
    for (const compare::Job& trial :
         compare::trial_options(request.plan.axes, checked.learning_rate))
      check(0, trial, ++number);
  }
  if (search_by_ == "time" && request.comparison.target == 0)
    throw ConfigError("--search-by time: to what? expected --target-accuracy");
}

void CompareOptionReader::read_expected(compare::Comparison& comparison) const {
  std::vector<std::string> names;
  for (const compare::Row& row : comparison.rows) names.push_back(row.entry.name);
  for (const std::string& piece : split_text(expect_, ',')) {
    const std::string name = stripped(piece);
    if (std::find(names.begin(), names.end(), name) == names.end())
      throw ConfigError(fmt::format("--expect '{}': there is no entry '{}'; expected some of {}{}",
                                    expect_, name, fmt::join(names, ", "),
                                    did_you_mean(name, names)));
    comparison.expect.push_back(name);
  }
}

}  // namespace skein
