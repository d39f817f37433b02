#include "cli/compare_job.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <numeric>

#include "cli/simulate_options.h"
#include "cli/suggest.h"
#include "cli/train_options.h"
#include "core/clock.h"
#include "skein/error.h"

namespace skein {
namespace {

// Parses `words`; what is left over is an option that there is not.
void parse_run(CLI::App& app, std::vector<std::string> words, const std::string& kind) {
  app.allow_extras();
  std::reverse(words.begin(), words.end());  // as CLI11 wants them
  try {
    app.parse(std::move(words));
  } catch (const CLI::Success&) {
    throw ConfigError(fmt::format("--help: skein {} --help lists its options", kind));
  } catch (const CLI::ParseError& error) {
    throw ConfigError(error.what());
  }
  const auto rest = app.remaining();
  if (rest.empty()) return;
  if (!rest.front().starts_with("-"))
    throw ConfigError(fmt::format("unexpected '{}'", rest.front()));
  std::vector<std::string> names;
  for (const std::string& name : option_names(app)) names.push_back("--" + name);
  const std::string name = rest.front().substr(0, rest.front().find('='));
  throw ConfigError(fmt::format("unknown option '{}': neither compare nor {} has it{}", name, kind,
                                did_you_mean(name, names)));
}

void with_reader(const std::string& kind, CLI::App& app, const std::function<void()>& body) {
  if (kind == "train") {
    const TrainOptionReader reader(app);
    body();
  } else {
    const SimulateOptionReader reader(app);
    body();
  }
}

}  // namespace

compare::KnownOptions CompareJobs::known() const {
  compare::KnownOptions out;
  CLI::App app;
  with_reader(kind_, app, [&] {
    for (const std::string& name : option_names(app))
      out[name] = is_flag(*app.get_option("--" + name));
  });
  return out;
}

compare::Job CompareJobs::given(const std::vector<std::string>& words) const {
  compare::Job out;
  CLI::App app;
  with_reader(kind_, app, [&] {
    parse_run(app, words, kind_);
    for (const std::string& name : option_names(app)) {
      const CLI::Option* option = app.get_option("--" + name);
      for (const std::string& value : option->results())
        compare::put(out, compare::entry_option(name, is_flag(*option) ? "true" : value,
                                                {{name, is_flag(*option)}}, "--" + name));
    }
  });
  return out;
}

CompareJobs::Checked CompareJobs::check(const std::vector<std::string>& arguments) const {
  return kind_ == "train" ? check_train(arguments) : check_simulate(arguments);
}

CompareJobs::Checked CompareJobs::check_train(const std::vector<std::string>& arguments) const {
  CLI::App app;
  TrainOptionReader reader(app);
  parse_run(app, arguments, kind_);
  const TrainOptions job = reader.read(std::nullopt);
  Checked out{job.strategy, job.workers, job.learning_rate, job.target_accuracy, 0};
  const double step = seconds(job.emulate_step);
  const double speeds = job.emulate_speeds.empty() ? job.workers
                                                   : std::accumulate(job.emulate_speeds.begin(),
                                                                     job.emulate_speeds.end(), 0.0);
  if (step > 0) out.summed_speed = speeds * static_cast<double>(job.batch) / step;
  return out;
}

CompareJobs::Checked CompareJobs::check_simulate(const std::vector<std::string>& arguments) const {
  CLI::App app;
  SimulateOptionReader reader(app);
  parse_run(app, arguments, kind_);
  reader.read_config_file();
  const auto request = reader.read();
  const TrainOptions& job = reader.job();
  return {job.strategy, job.workers, job.learning_rate, job.target_accuracy,
          static_cast<double>(request.scenario.batch * request.scenario.workers) /
              seconds(request.scenario.mean_gradient())};
}

}  // namespace skein
