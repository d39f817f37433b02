// skein simulate: strategies on a virtual cluster; one run, a sweep of runs, or a swarm.
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <random>

#include "cli/commands.h"
#include "cli/json_output.h"
#include "cli/simulate_options.h"
#include "cli/simulate_report.h"
#include "cli/status_line.h"
#include "cli/suggest.h"
#include "cli/with_torch.h"
#include "core/atomic_file.h"
#include "core/parse_number.h"
#include "core/spec.h"
#include "core/units.h"
#include "observe/trace_file.h"
#include "sim/simulation.h"
#include "sim/swarm.h"
#include "skein/error.h"

namespace skein {
namespace {

using Json = nlohmann::json;
using Words = std::vector<std::string>;

std::string fresh_id() {
  std::random_device random;
  return fmt::format("{:08x}{:08x}", random(), random());
}

Json run_one(const SimulateOptionReader::Request& request, StatusLine& status) {
  std::vector<std::unique_ptr<TraceRecorder>> traces;
  for (int rank = 0; rank < request.trace_workers && !request.trace.empty(); ++rank)
    traces.push_back(std::make_unique<TraceRecorder>(rank));
  NoTrace none;
  const auto trace_of = [&](int rank) -> Trace& {
    if (rank < std::ssize(traces)) return *traces[static_cast<std::size_t>(rank)];
    return none;
  };
  const auto tell = [&](const sim::Moment& moment) {
    status.say(request.scenario.samples > 0
                   ? fmt::format("{:3.0f} %, {} virtual, {} events",
                                 100.0 * static_cast<double>(moment.samples) /
                                     static_cast<double>(request.scenario.samples),
                                 print_duration(moment.time),
                                 print_count(static_cast<double>(moment.events)))
                   : fmt::format("{} virtual, {} events", print_duration(moment.time),
                                 print_count(static_cast<double>(moment.events))));
  };
  const sim::Report report =
      sim::simulate(request.scenario, request.objective.get(), trace_of, tell);
  status.clear();
  if (!traces.empty()) {
    const auto stem = appears_by_rename(request.trace) ? std::filesystem::path(request.trace)
                                                       : TraceRecorder::stem_apart(fresh_id());
    for (const auto& trace : traces) trace->write_part(stem);
    TraceRecorder::join_parts(stem, static_cast<int>(traces.size()), request.trace);
  }
  return figures_of(request, report);
}

// A point of a sweep as a command line: what was typed, without --sweep and without the swept
// options, then those.
Words arguments_of_point(const Words& typed,
                         const std::vector<std::pair<std::string, std::string>>& settings) {
  const auto swept = [&](const std::string& word) {
    if (word == "--sweep" || word == "--json" || word == "--trace") return true;
    for (const auto& [key, value] : settings)
      if (word == "--" + key) return true;
    return false;
  };
  Words words;
  for (std::size_t i = 1; i < typed.size(); ++i) {  // the first is "simulate"
    const std::size_t equals = typed[i].find('=');
    if (swept(typed[i]))
      ++i;  // and its value
    else if (!(typed[i].starts_with("--") && swept(typed[i].substr(0, equals))))
      words.push_back(typed[i]);
  }
  for (const auto& [key, value] : settings) {
    if (key.find('.') == std::string::npos) {
      words.push_back("--" + key);
      words.push_back(value);
    } else {
      words.push_back("--set");
      words.push_back(key + "=" + value);
    }
  }
  return words;
}

class Simulate {
 public:
  explicit Simulate(CLI::App& command) : command_(command), reader_(command) {}

  int operator()(const Invocation& invocation) {
    reader_.read_config_file();
    if (reader_.may_use_models()) with_torch();
    const JsonOutput json(reader_.options(), "simulate");
    if (!reader_.swarm().empty()) return swarm(json);
    if (!reader_.sweeps().empty()) return sweep(json, invocation.arguments);
    StatusLine status(reader_.options().quiet());
    const auto request = reader_.read();
    const Json figures = run_one(request, status);
    fmt::print("{}\n", simulation_text(figures));
    write(json, figures);
    return figures["completed"] == true ? 0 : 1;
  }

 private:
  void write(const JsonOutput& json, const Json& figures) const {
    json.write(figures, reader_.options().seed(), reader_.options().config());
  }

  using Axis = std::pair<std::string, Words>;

  std::vector<Axis> read_axes() const {
    const auto known = option_names(command_);
    std::vector<Axis> axes;
    for (const std::string& text : reader_.sweeps()) {
      const std::size_t equals = text.find('=');
      if (equals == std::string::npos || equals == 0 || equals + 1 == text.size())
        throw ConfigError(fmt::format("--sweep {}: expected KEY=V1,V2…", text));
      const std::string key = text.substr(0, equals);
      if (key.find('.') == std::string::npos && !std::ranges::count(known, key))
        throw ConfigError(fmt::format("--sweep {}: there is no option '{}'{}", text, key,
                                      did_you_mean(key, known)));
      const std::string values = text.substr(equals + 1);
      const char separator = values.find('|') == std::string::npos ? ',' : '|';
      axes.emplace_back(key, split_text(values, separator));
    }
    return axes;
  }

  int sweep(const JsonOutput& json, const Words& typed) const {
    const auto axes = read_axes();
    std::size_t count = 1;
    for (const Axis& axis : axes) count *= axis.second.size();
    StatusLine status(reader_.options().quiet());
    std::vector<SweepPoint> points;
    for (std::size_t number = 0; number < count; ++number) {
      SweepPoint point;
      std::size_t rest = number, below = count;
      for (const auto& [key, values] : axes) {
        below /= values.size();
        point.settings.emplace_back(key, values[rest / below]);
        rest %= below;
      }
      point.figures = run_point(arguments_of_point(typed, point.settings), status);
      points.push_back(std::move(point));
    }
    status.clear();
    fmt::print("{}\n", sweep_text(points));
    Json rows = Json::array();
    bool completed = true;
    for (const SweepPoint& point : points) {
      Json row = point.figures;
      for (const auto& [key, value] : point.settings) row["settings"][key] = value;
      completed = completed && row["completed"] == true;
      rows.push_back(std::move(row));
    }
    write(json, {{"sweep", rows}});
    return completed ? 0 : 1;
  }

  static Json run_point(Words words, StatusLine& status) {
    CLI::App app;
    SimulateOptionReader reader(app);
    std::reverse(words.begin(), words.end());  // as CLI11 wants them
    try {
      app.parse(std::move(words));
    } catch (const CLI::ParseError& error) {
      throw ConfigError(fmt::format("--sweep: {}", error.what()));
    }
    reader.read_config_file();
    return run_one(reader.read(), status);
  }

  int swarm(const JsonOutput& json) const {
    const auto [first, last] = read_seeds();
    if (first == last) fmt::print("seed {}: {}\n", first, sim::draw(first).describe());
    StatusLine status(reader_.options().quiet());
    const auto report = sim::run_swarm(first, last, [&, from = first](std::uint64_t seed) {
      status.say(fmt::format("{} seeds", seed - from + 1));
    });
    status.clear();
    fmt::print("{}\n", swarm_text(report));
    write(json, figures_of(report));
    return report.broken.empty() ? 0 : 1;
  }

  std::pair<std::uint64_t, std::uint64_t> read_seeds() const {
    const std::string& text = reader_.swarm();
    const std::size_t dots = std::min(text.find(".."), text.size());
    const auto number = [&](std::string_view part) {
      std::uint64_t value = 0;
      if (!parse_number(part, value))
        throw ConfigError(
            fmt::format("--swarm {}: expected a seed or FIRST..LAST, such as 1..1000", text));
      return value;
    };
    const std::string_view all = text;
    const std::uint64_t first = number(all.substr(0, dots));
    const std::uint64_t last = dots == text.size() ? first : number(all.substr(dots + 2));
    if (last < first)
      throw ConfigError(fmt::format("--swarm {}: expected FIRST at most LAST", text));
    return {first, last};
  }

  const CLI::App& command_;
  SimulateOptionReader reader_;
};

}  // namespace

void add_simulate(CLI::App& app, Invocation& invocation) {
  CLI::App& command =
      *app.add_subcommand("simulate", "run strategies on a virtual cluster, on simulated time");
  command.footer(
      "Settings (--set): those of skein train, of which strategy.… always counts and the others "
      "for "
      "--objective model\n\n"
      "Examples:\n"
      "  skein simulate --workers 64 --gpus-per-host 4 --network 10gbe --profile resnet50\n"
      "  skein simulate --workers 16 --objective model --model cnn --emulate-step 40ms "
      "--iterations 300\n"
      "  skein simulate --workers 64 --objective model --device cuda --model resnet18 --data "
      "cifar10:DIR --emulate-step 40ms\n"
      "  skein simulate --profile bert-base --sweep workers=8,64 --sweep network=10gbe,100gib");
  auto simulate = std::make_shared<Simulate>(command);
  command.callback([simulate, &invocation] {
    invocation.action = [simulate, &invocation] { return (*simulate)(invocation); };
  });
}

}  // namespace skein
