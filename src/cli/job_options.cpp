#include "cli/job_options.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <utility>

#include "cli/suggest.h"
#include "core/parse_number.h"
#include "core/spec.h"
#include "optimize/schedule.h"
#include "skein/error.h"
#include "strategy/registry.h"

namespace skein {
namespace {

std::vector<double> parse_speeds(const std::string& text) {
  std::vector<double> out;
  for (const std::string& piece : split_text(text, ',')) {
    double value = 0;
    if (!parse_number(piece, value) || !std::isfinite(value) || value <= 0)
      throw ConfigError(fmt::format(
          "--emulate-speeds {}: expected positive numbers with commas, such as 1,1,2,4", text));
    out.push_back(value);
  }
  return out;
}

// "allreduce, dear: auto", "local: 8, lasgd: 1".
std::string fallbacks_of(const std::string& option) {
  std::vector<std::pair<std::string, std::string>> groups;  // strategies, and what it is for them
  for (const StrategyInfo& strategy : strategies())
    for (const OptionInfo& each : strategy.options) {
      if (each.name != option) continue;
      if (!groups.empty() && groups.back().second == each.fallback)
        groups.back().first += ", " + strategy.name;
      else
        groups.emplace_back(strategy.name, each.fallback);
    }
  std::string text;
  for (const auto& [names, fallback] : groups)
    text += (text.empty() ? "" : "; ") + names + ": " + fallback;
  return text;
}

}  // namespace

std::string strategy_settings_help() {
  std::string text;
  std::set<std::string> said;
  for (const StrategyInfo& strategy : strategies())
    for (const OptionInfo& each : strategy.options) {
      if (!said.insert(each.name).second) continue;
      const bool range = each.allowed.find(' ') != std::string::npos;
      text += fmt::format("  strategy.{}={}\n      {}{}{} ({})\n", each.name,
                          range ? "N" : each.allowed, each.what, range ? ", " : "",
                          range ? each.allowed : "", fallbacks_of(each.name));
    }
  return text;
}

bool positive(double value) { return value > 0; }
bool not_negative(double value) { return value >= 0; }

void JobOptions::declare_model() {
  options_.text("--model", job_.model, "NAME", "mlp, cnn, resnet18, resnet50, gpt");
  options_.text("--data", job_.data, "SET",
                "glyphs, mnist:DIR, cifar10:DIR, images:DIR, text:FILE");
  options_.repeated("--set", sets_, "PART.KEY=VALUE",
                    "a setting, such as model.width=64; of strategy, model or data");
}

void JobOptions::declare_strategy() {
  options_.choice("--strategy", job_.strategy, strategy_names(), "how the workers cooperate");
  options_.text("--topology", topology_, "GRAPH", "who talks to whom (gossip strategies)");
  options_.text("--wire", job_.wire, "TYPE",
                "what travels between synchronous workers: f32, or bf16 in half the bytes");
  options_.number("--rate", rate_, "a positive number", positive,
                  "exchanges per gradient (gossip strategies)");
}

void JobOptions::declare_optimizer() {
  options_.group("Optimizer");
  options_.choice("--optimizer", job_.optimizer, {"sgd", "adamw"},
                  "what turns gradients into steps");
  // Its default depends on --optimizer, so none is shown as the value.
  job_.learning_rate = 0;
  options_.number("--lr", job_.learning_rate, "a positive number", positive,
                  "learning rate; 0.05 for sgd (0.01 with mlp) and 0.001 for adamw unless given");
  options_.number(
      "--momentum", job_.momentum, "a number from 0 to below 1",
      [](double value) { return value >= 0 && value < 1; }, "of sgd");
  options_.flag("--nesterov", job_.nesterov, "Nesterov's momentum, of sgd");
  options_.number("--weight-decay", job_.weight_decay, "a number of at least 0", not_negative,
                  "decay of the parameters");
  options_.text("--schedule", job_.schedule, "SCHEDULE",
                "constant, cosine:floor=0.001,warmup=5000, step:every=50000,factor=0.1");
  options_.number("--clip", job_.clip, "a positive number", positive,
                  "largest global norm of the gradient");
}

void JobOptions::declare_speeds() {
  options_.text("--emulate-speeds", speeds_, "LIST",
                "relative speed of each worker, such as 1,1,2,4");
  options_.duration("--emulate-step", job_.emulate_step,
                    "a micro-batch at speed 1 takes at least this");
  options_.number(
      "--jitter", job_.jitter, "a number from 0 to below 1",
      [](double x) { return x >= 0 && x < 1; }, "a micro-batch takes 1 ± this of its time");
  options_.text("--slowdowns", slowdowns_, "every=TIME,for=TIME,factor=X",
                "slow periods that come and go on each worker");
}

void JobOptions::declare_link() {
  options_.bandwidth("--emulate-link", job_.emulate_link,
                     "bandwidth of each worker, each direction, such as 1gbit");
  options_.duration("--emulate-latency", job_.emulate_latency, "delay of every message");
}

void JobOptions::read(bool with_model) {
  job_.seed = options_.seed();
  job_.quiet = options_.quiet();
  job_.json = options_.json();
  if (!speeds_.empty()) job_.emulate_speeds = parse_speeds(speeds_);
  if (!slowdowns_.empty()) job_.slowdowns = parse_slowdowns(slowdowns_);
  for (const char* name : {"--topology", "--rate"})
    if (options_.given(name) && !traits_of(job_.strategy).needs_graph)
      throw ConfigError(fmt::format("{}: strategy '{}' does not use it", name, job_.strategy));
  if (job_.deadline.count() <= 0) throw ConfigError("--deadline 0: expected more than 0");
  check_optimizer(with_model);
  read_settings(options_, sets_, {"strategy", "model", "data"}, job_);
  if (options_.given("--topology")) job_.strategy_settings["topology"] = topology_;
  if (options_.given("--rate")) job_.strategy_settings["rate"] = fmt::format("{}", rate_);
  check_strategy(job_.strategy, job_.strategy_settings);
  if (options_.given("--wire")) read_wire();
}

// Another name of the setting that strategies have whose messages can be rounded.
void JobOptions::read_wire() {
  const auto set = job_.strategy_settings.find("wire");
  if (set != job_.strategy_settings.end() && set->second != job_.wire)
    throw ConfigError(fmt::format("--wire {} and --set strategy.wire={}: expected one of the two",
                                  job_.wire, set->second));
  if (job_.wire != "f32" && job_.wire != "bf16")
    throw ConfigError(
        fmt::format("--wire {}: there is no such type; expected f32 or bf16", job_.wire));
  if (job_.wire == "f32") return;  // every strategy's default
  job_.strategy_settings["wire"] = job_.wire;
  try {
    check_strategy(job_.strategy, job_.strategy_settings);
  } catch (const ConfigError& error) {
    throw ConfigError(fmt::format("--wire {}: {}", job_.wire, error.what()));
  }
}

void JobOptions::check_optimizer(bool with_model) {
  const bool sgd = job_.optimizer == "sgd";
  const double sgd_rate = with_model && job_.model == "mlp" ? 0.01 : 0.05;
  if (!options_.given("--lr")) job_.learning_rate = sgd ? sgd_rate : 0.001;
  for (const char* name : {"--momentum", "--nesterov"})
    if (!sgd && options_.given(name))
      throw ConfigError(
          fmt::format("{}: --optimizer {} does not use it; expected sgd", name, job_.optimizer));
  if (job_.nesterov && job_.momentum == 0)
    throw ConfigError("--nesterov with --momentum 0: expected a momentum above 0");
  parse_schedule(job_.schedule);
}

void read_settings(const CommandOptions& options, const std::vector<std::string>& sets,
                   const std::vector<std::string>& parts, TrainOptions& job) {
  std::vector<std::string> all = options.config_sets();
  all.insert(all.end(), sets.begin(), sets.end());  // later ones win
  for (const std::string& text : all) {
    const std::size_t dot = text.find('.'), equals = text.find('=');
    if (dot == std::string::npos || equals == std::string::npos || dot + 1 >= equals)
      throw ConfigError(fmt::format("--set {}: expected PART.KEY=VALUE with PART one of {}", text,
                                    fmt::join(parts, ", ")));
    const std::string part = text.substr(0, dot);
    const std::string key = text.substr(dot + 1, equals - dot - 1);
    const std::string value = text.substr(equals + 1);
    if (std::find(parts.begin(), parts.end(), part) == parts.end())
      throw ConfigError(fmt::format("--set {}: there is no part '{}'; expected {}{}", text, part,
                                    fmt::join(parts, ", "), did_you_mean(part, parts)));
    (part == "strategy" ? job.strategy_settings
     : part == "model"  ? job.model_settings
                        : job.data_settings)[key] = value;
  }
}

}  // namespace skein
