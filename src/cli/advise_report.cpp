#include "cli/advise_report.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "advise/cluster.h"
#include "advise/sentences.h"
#include "core/field_names.h"
#include "core/units.h"
#include "launch/shell.h"

namespace skein {
namespace {

using Json = nlohmann::json;
using advise::Candidate;
using advise::Setup;

// The slowest link over the fastest. Busy hosts alone make less of a difference.
constexpr double kAlike = 0.5;

Json candidate_json(const Candidate& each, const advise::Rule& rule) {
  Json json{{"strategy", each.setup.strategy},
            {"settings", each.setup.settings},
            {"wire", advise::is_bf16(each.setup) ? "bf16" : "f32"},
            {"levels", each.setup.one_level ? "one" : "auto"},
            {"synchronous", advise::is_synchronous(each.setup)},
            {field::kIterationMs, each.iteration_ms},
            {field::kSamplesPerSecond, each.samples_per_second},
            {"utilisation", each.of_summed_speed},
            {"bytes_per_step", each.bytes_per_step},
            {field::kExposedCommMs, each.exposed_ms},
            {"steps_between_averages", each.steps_between},
            {"must_gain_percent", rule.percent(each.setup)}};
  if (!each.error.empty()) json["error"] = each.error;
  return json;
}

Json change_rows(const std::vector<advise::Change>& changes, const char* unit) {
  Json rows = Json::array();
  for (const advise::Change& change : changes)
    rows.push_back({{unit, change.at}, {"before", change.before}, {"after", change.after}});
  return rows;
}

Json map_json(const advise::Map& map) {
  Json cells = Json::array();
  for (std::size_t row = 0; row < map.ratios.size(); ++row)
    for (std::size_t column = 0; column < map.bandwidths.size(); ++column) {
      const advise::Cell& cell = map.at(row, column);
      cells.push_back({{"bytes_per_second", map.bandwidths[column]},
                       {"fastest_over_slowest", map.ratios[row]},
                       {"strategy", cell.setup.strategy},
                       {"settings", cell.setup.settings},
                       {"over_allreduce", cell.gain}});
    }
  return cells;
}

Json links_json(const std::vector<MeasuredLink>& links) {
  Json rows = Json::array();
  for (const MeasuredLink& link : links)
    rows.push_back(
        {{"hosts", {link.from + 1, link.to + 1}}, {"bytes_per_second", link.bytes_per_second}});
  return rows;
}

std::string headline(const advise::Advice& advice) {
  const sim::Scenario& cluster = advice.cluster;
  const int per_host = cluster.network.workers_per_host;
  std::string text = fmt::format(
      "{} ({} parameters, batch {}, {:.1f} ms at speed 1) on {} workers{}, {} and {} between hosts",
      cluster.profile.name, print_count(static_cast<double>(cluster.profile.parameters())),
      cluster.batch,
      milliseconds(cluster.profile.forward() + cluster.profile.backward()) *
          static_cast<double>(cluster.batch) / static_cast<double>(cluster.profile.batch),
      cluster.workers, per_host > 1 ? fmt::format(", {} per host", per_host) : "",
      advise::rate_text(cluster.network.bytes_per_second), print_duration(cluster.network.latency));
  if (advise::ratio_of(cluster) > 1 && cluster.speeds.size() <= 16)
    text += fmt::format("; speeds {}", fmt::join(cluster.speeds, ", "));
  return text;
}

// Only where they differ: what is simulated has one bandwidth.
std::string links_text(const std::vector<MeasuredLink>& links) {
  if (links.empty()) return "";
  const auto by_rate = [](const MeasuredLink& a, const MeasuredLink& b) {
    return a.bytes_per_second < b.bytes_per_second;
  };
  const auto [slowest, fastest] = std::minmax_element(links.begin(), links.end(), by_rate);
  if (slowest->bytes_per_second > kAlike * fastest->bytes_per_second) return "";
  return fmt::format(
      "links differ: hosts {} and {} have {}, hosts {} and {} have {}; simulated with one "
      "bandwidth "
      "for all, that of an all-reduce\n",
      slowest->from + 1, slowest->to + 1, advise::rate_text(slowest->bytes_per_second),
      fastest->from + 1, fastest->to + 1, advise::rate_text(fastest->bytes_per_second));
}

std::string row_text(const Candidate& each, const Candidate& plain, const char* mark) {
  if (!each.error.empty())
    return fmt::format("{:<2}{:<11}{:<30}  failed: {}\n", mark, each.setup.strategy,
                       advise::settings_of(each.setup), each.error);
  return fmt::format("{:<2}{:<11}{:<30}{:>13.2f}{:>11.0f}{:>8.1f} %{:>11}{:>12.2f}{:>10.2f} x\n",
                     mark, each.setup.strategy, advise::settings_of(each.setup), each.iteration_ms,
                     each.samples_per_second, 100 * each.of_summed_speed,
                     print_bytes(each.bytes_per_step), each.exposed_ms,
                     each.samples_per_second / std::max(1e-9, plain.samples_per_second));
}

}  // namespace

std::string AdviceReport::text() const {
  std::string text = headline(advice) + "\n" + links_text(links) + "\n" +
                     fmt::format("{:<2}{:<11}{:<30}{:>13}{:>11}{:>10}{:>11}{:>12}{:>12}\n", "",
                                 "strategy", "settings", "iteration ms", "samples/s", "of speed",
                                 "sent/step", "exposed ms", "gain");
  for (std::size_t i = 0; i < advice.candidates.size(); ++i)
    text +=
        row_text(advice.candidates[i], advice.plain(), i == advice.choice.recommended ? "*" : "");
  text += fmt::format(
      "of speed: of what all workers could compute; sent/step: by a worker for each of its "
      "batches;\n"
      "gain: over allreduce in float32. {} simulations of {} steps.\n",
      advice.simulations, effort.steps);
  const std::string settings = advise::settings_of(advice.recommended().setup);
  text += fmt::format("\nUse {}{}{}.\n{}\n{}\n", advice.recommended().setup.strategy,
                      settings.empty() ? "" : " with ", settings, advise::reason(advice),
                      advise::caution(advice));
  text += fmt::format("\n  {}\n", command);
  if (!note.empty()) text += note + "\n";
  if (!rehearsal.empty())
    text += fmt::format("To try it on this host, as the cluster would behave:\n  {}\n", rehearsal);
  text +=
      fmt::format("\nRunner-up: {}, {:.0f} samples/s.\n", advise::name_of(advice.runner_up().setup),
                  advice.runner_up().samples_per_second);
  for (const std::string& sentence : advise::change_sentences(advice)) text += sentence + "\n";
  return text;
}

nlohmann::json AdviceReport::json() const {
  const sim::Scenario& cluster = advice.cluster;
  Json candidates = Json::array(), tried = Json::array();
  for (const Candidate& each : advice.candidates)
    candidates.push_back(candidate_json(each, effort.rule));
  for (const Candidate& each : advice.tried) tried.push_back(candidate_json(each, effort.rule));
  Json recommended = candidates[advice.choice.recommended];
  recommended["command"] = command;
  recommended["rehearsal"] = rehearsal.empty() ? Json(nullptr) : Json(rehearsal);
  recommended["note"] = note;
  recommended["reason"] = advise::reason(advice);
  recommended["caution"] = advise::caution(advice);
  Json json{{"recommended", recommended},
            {"runner_up", candidates[advice.choice.runner_up]},
            {"fastest", candidates[advice.choice.fastest]},
            {"candidates", candidates},
            {"tried", tried},
            {"changes",
             {{"faster_network", change_rows(advice.faster, "bytes_per_second")},
              {"slower_network", change_rows(advice.slower, "bytes_per_second")},
              {"less_equal_workers", change_rows(advice.less_equal, "fastest_over_slowest")},
              {"more_equal_workers", change_rows(advice.more_equal, "fastest_over_slowest")},
              {"sentences", advise::change_sentences(advice)}}},
            {"cluster",
             {{"workers", cluster.workers},
              {"gpus_per_host", cluster.network.workers_per_host},
              {"network", cluster.network.name},
              {"bytes_per_second", cluster.network.bytes_per_second},
              {"latency_ms", milliseconds(cluster.network.latency)},
              {"speeds", cluster.speeds},
              {"fastest_over_slowest", advise::ratio_of(cluster)},
              {"links", links_json(links)},
              {"measured", measured}}},
            {"model",
             {{"profile", cluster.profile.name},
              {"source", cluster.profile.source},
              {"parameters", cluster.profile.parameters()},
              {"batch", cluster.batch}}},
            {"margin", effort.rule.margin},
            {"steps", effort.steps},
            {"simulations", advice.simulations},
            {"events", advice.events}};
  if (map) json["map"] = map_json(*map);
  return json;
}

std::string train_command(const std::vector<std::string>& options, const Setup& setup) {
  std::string command = "skein train";
  for (const std::string& word : options) command += " " + shell_quoted(word);
  for (const std::string& word : advise::options_of(setup)) command += " " + shell_quoted(word);
  const bool between =
      std::ranges::count(options, "--hosts") + std::ranges::count(options, "--hostfile") > 0;
  return command + (setup.one_level && !between ? " --fabric tcp" : "");
}

std::vector<std::string> rehearsal_options(const sim::Scenario& cluster) {
  if (cluster.network.workers_per_host > 1 || !cluster.network.links.empty()) return {};
  const double step = milliseconds(cluster.profile.forward() + cluster.profile.backward()) *
                      static_cast<double>(cluster.batch) /
                      static_cast<double>(cluster.profile.batch);
  std::vector<std::string> words{
      "--emulate-link", fmt::format("{:g}mbit", cluster.network.bytes_per_second * 8 / 1e6),
      "--emulate-step", fmt::format("{:g}ms", step)};
  if (cluster.network.latency.count() > 0)
    words.insert(words.end(), {"--emulate-latency",
                               fmt::format("{:g}us", 1e6 * seconds(cluster.network.latency))});
  if (advise::ratio_of(cluster) > 1)
    words.insert(words.end(),
                 {"--emulate-speeds", fmt::format("{}", fmt::join(cluster.speeds, ","))});
  return words;
}

}  // namespace skein
