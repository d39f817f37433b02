#include "compare/search.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <utility>

#include "core/field_names.h"
#include "core/parse_number.h"
#include "core/spec.h"
#include "skein/error.h"

namespace skein::compare {
namespace {

using Json = nlohmann::json;

double figure_or(const Run& run, const char* key, double otherwise) {
  const auto found = run.figures.find(key);
  return found == run.figures.end() ? otherwise : found->second;
}

// The less the better, first by the first.
std::pair<double, double> badness(const Run& run, JudgedBy by) {
  constexpr double never = std::numeric_limits<double>::infinity();
  const double loss = figure_or(run, field::kLoss, never);
  const double accuracy = figure_or(run, field::kAccuracy, -1);
  if (by == JudgedBy::time) return {figure_or(run, field::kSecondsToTarget, never), -accuracy};
  return {-accuracy, loss};
}

double value_of(const Job& options, const std::string& name) {
  double value = 0;
  const std::string* text = find(options, name);
  if (text != nullptr) parse_number(*text, value);
  return value;
}

SearchAxis parse_axis(const std::string& text) {
  const auto refuse = [&](const std::string& why) {
    throw ConfigError(fmt::format("--search {}: {}", text, why));
  };
  const std::size_t equals = text.find('=');
  SearchAxis axis;
  axis.option = text.substr(0, equals);
  if (equals == std::string::npos || (axis.option != "lr" && axis.option != "momentum"))
    refuse("expected lr=V1,V2… or momentum=V1,V2…");
  const bool lr = axis.option == "lr";
  std::size_t factors = 0;
  for (std::string piece : split_text(text.substr(equals + 1), ',')) {
    if (piece.ends_with("x")) {
      piece.pop_back();
      ++factors;
    }
    double value = 0;
    const bool number = parse_number(piece, value) && std::isfinite(value);
    if (!number || (lr ? value <= 0 : value < 0 || value >= 1))
      refuse(lr ? "expected positive numbers, or factors such as 0.3x"
                : "expected numbers from 0 to below 1");
    axis.values.push_back(value);
  }
  if (axis.values.empty()) refuse("expected a value at least");
  if (factors != 0 && factors != axis.values.size())
    refuse("some are factors and some are not: expected one kind");
  if (factors != 0 && !lr) refuse("momentum has values, no factors");
  axis.factors = factors != 0;
  return axis;
}

}  // namespace

std::vector<SearchAxis> parse_axes(const std::vector<std::string>& texts) {
  std::vector<SearchAxis> axes;
  for (const std::string& text : texts) {
    std::string axis;
    for (const std::string& piece : split_text(text, ',')) {
      if (piece.find('=') != std::string::npos && !axis.empty())
        axes.push_back(parse_axis(std::exchange(axis, "")));
      axis += (axis.empty() ? "" : ",") + piece;
    }
    axes.push_back(parse_axis(axis));
  }
  for (const SearchAxis& axis : axes)
    if (std::count_if(axes.begin(), axes.end(),
                      [&](const SearchAxis& each) { return each.option == axis.option; }) > 1)
      throw ConfigError(fmt::format("--search {}: it is there twice; expected once", axis.option));
  return axes;
}

std::vector<Job> trial_options(const std::vector<SearchAxis>& axes, double lr) {
  std::vector<Job> all{Job()};
  for (const SearchAxis& axis : axes) {
    std::vector<Job> longer;
    longer.reserve(all.size() * axis.values.size());
    for (const Job& job : all)
      for (const double value : axis.values) {
        Job next = job;
        put(next, {axis.option, fmt::format("{:.4g}", axis.factors ? value * lr : value), false});
        longer.push_back(std::move(next));
      }
    all = std::move(longer);
  }
  return all;
}

double Search::seconds() const {
  double sum = 0;
  for (const Trial& trial : trials) sum += trial.run.wall_seconds;
  return sum;
}

Job Search::options() const {
  return chosen < 0 ? Job() : trials[static_cast<std::size_t>(chosen)].options;
}

int choose(const std::vector<Trial>& trials, JudgedBy by) {
  int best = -1;
  for (int i = 0; i < static_cast<int>(trials.size()); ++i) {
    const Run& run = trials[static_cast<std::size_t>(i)].run;
    if (!run.ok()) continue;
    if (best < 0 || badness(run, by) < badness(trials[static_cast<std::size_t>(best)].run, by))
      best = i;
  }
  return best;
}

std::vector<std::string> at_the_edge(const Search& search) {
  std::vector<std::string> out;
  for (const JobOption& option : search.options()) {
    const double chosen = value_of(search.options(), option.name);
    double least = chosen, greatest = chosen;
    for (const Trial& trial : search.trials) {
      least = std::min(least, value_of(trial.options, option.name));
      greatest = std::max(greatest, value_of(trial.options, option.name));
    }
    if (least < greatest && (chosen == least || chosen == greatest)) out.push_back(option.name);
  }
  return out;
}

Json to_json(const Search& search) {
  const auto object = [](const Job& options) {
    Json out = Json::object();
    for (const JobOption& option : options) out[option.name] = value_of(options, option.name);
    return out;
  };
  Json trials = Json::array();
  for (const Trial& trial : search.trials) {
    Json line = to_json(trial.run);
    line["options"] = object(trial.options);
    trials.push_back(std::move(line));
  }
  return {{"judged_by", search.by == JudgedBy::time ? "time" : "accuracy"},
          {"samples_each", search.samples_each},
          {"samples", search.samples_each * static_cast<std::int64_t>(search.trials.size())},
          {"wall_seconds", search.seconds()},
          {"chosen", search.chosen < 0 ? Json() : object(search.options())},
          {"at_the_edge", at_the_edge(search)},
          {"trials", std::move(trials)}};
}

}  // namespace skein::compare
