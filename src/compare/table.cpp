#include "compare/table.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>

#include "core/field_names.h"
#include "core/spec.h"

namespace skein::compare {
namespace {

constexpr std::size_t kLeastWidth = 9;

std::string padded(const std::string& text, std::size_t width, bool left) {
  const std::size_t shown = shown_width(text);
  const std::string space(width > shown ? width - shown : 0, ' ');
  return left ? text + space : space + text;
}

// Launchers say first what went wrong and then what to do about it; others say it last.
std::string headline(const std::string& error) {
  std::string last;
  for (const std::string& line : split_text(error, '\n')) {
    if (line.starts_with("skein") || line.starts_with("FAILED") || line.starts_with("HUNG"))
      return line;
    last = line;
  }
  return last;
}

std::string failure(const Run& run) {
  return fmt::format("failed (exit code {}): {}", run.code, headline(run.error));
}

// What is left out is in the JSON. The time per 1,000 samples is the speed in other words.
bool in_table(const Figure& figure) {
  return figure.comparable && figure.key != field::kLoss && figure.key != "ms_per_1000_samples";
}

// What every entry has no figure of takes no column.
std::vector<const Figure*> columns_of(const Comparison& comparison) {
  std::set<std::string> keys;
  for (const Row& row : comparison.rows)
    for (const auto& [key, spread] : row.figures(comparison.target > 0)) keys.insert(key);
  std::vector<const Figure*> out;
  for (const Figure& each : all_figures())
    if (keys.count(each.key) != 0 && in_table(each)) out.push_back(&each);
  return out;
}

bool shows_range(const Figure& figure, bool target) {
  if (figure.key == field::kAccuracy || figure.key == field::kSecondsToTarget) return true;
  return !target && figure.key == field::kSamplesPerSecond;
}

}  // namespace

std::size_t shown_width(const std::string& text) {
  return static_cast<std::size_t>(std::count_if(text.begin(), text.end(), [](char c) {
    return (static_cast<unsigned char>(c) & 0xC0U) != 0x80U;
  }));
}

std::string aligned(const std::vector<std::vector<std::string>>& rows) {
  std::vector<std::size_t> widths;
  for (const auto& row : rows)
    for (std::size_t i = 0; i < row.size(); ++i) {
      if (i == widths.size()) widths.push_back(0);
      widths[i] = std::max(widths[i], shown_width(row[i]));
    }
  std::string out;
  for (const auto& row : rows) {
    std::string line;
    for (std::size_t i = 0; i < row.size(); ++i)
      line.append(i == 0 ? "" : "  ").append(padded(row[i], widths[i], i == 0));
    out += line + "\n";
    if (&row != &rows.front()) continue;
    for (std::size_t i = 0; i < widths.size(); ++i)
      out.append(i == 0 ? "" : "  ").append(widths[i], '-');
    out += "\n";
  }
  return out;
}

LiveTable::LiveTable(const Comparison& comparison) : rounds_(comparison.rounds) {
  name_width_ = shown_width("strategy");
  for (const Row& row : comparison.rows)
    name_width_ = std::max(name_width_, shown_width(row.entry.name));
  for (const Figure& each : all_figures()) {
    if (!in_table(each)) continue;
    if (each.key == field::kSecondsToTarget && comparison.target == 0) continue;
    if (each.key == field::kAccuracy && comparison.kind == "simulate" &&
        find(comparison.job, "objective") == nullptr)
      continue;  // only time is simulated
    columns_.push_back(&each);
  }
}

std::string LiveTable::head() const {
  std::string names = padded("strategy", name_width_, true), rule(name_width_, '-');
  if (rounds_ > 1) names += "  round";
  if (rounds_ > 1) rule += "  -----";
  for (const Figure* column : columns_) {
    const std::size_t width = std::max(kLeastWidth, column->title.size());
    names.append("  ").append(padded(column->title, width, false));
    rule.append("  ").append(std::string(width, '-'));
  }
  return names + "\n" + rule + "\n";
}

std::string LiveTable::line(const std::string& name, const Run& run) const {
  std::string out = padded(name, name_width_, true);
  if (rounds_ > 1) out += fmt::format("  {:>5}", run.round);
  if (!run.ok()) return fmt::format("{}  {}\n", out, failure(run));
  for (const Figure* column : columns_) {
    const auto found = run.figures.find(column->key);
    std::string text = column->key == field::kSecondsToTarget ? "not reached" : "-";
    if (found != run.figures.end()) text = print_value(*column, found->second);
    out.append("  ").append(padded(text, std::max(kLeastWidth, column->title.size()), false));
  }
  return out + "\n";
}

std::string median_table(const Comparison& comparison) {
  const auto columns = columns_of(comparison);
  const bool target = comparison.target > 0;
  std::vector<std::vector<std::string>> lines;
  lines.reserve(comparison.rows.size() + 1);
  std::vector<std::string> head{"strategy"};
  for (const Figure* column : columns) head.push_back(column->title);
  lines.push_back(std::move(head));
  for (const Row& row : comparison.rows) {
    const RowFigures figures = row.figures(target);
    std::vector<std::string> cells{row.entry.name};
    for (const Figure* column : columns) {
      const auto found = figures.find(column->key);
      if (found == figures.end())
        cells.emplace_back("-");
      else if (shows_range(*column, target) || !found->second.median)
        cells.push_back(print_spread(*column, found->second));
      else
        cells.push_back(print_value(*column, *found->second.median));
    }
    lines.push_back(std::move(cells));
  }
  std::string out = aligned(lines);
  for (const Row& row : comparison.rows)
    for (const Run& run : row.runs)
      if (!run.ok())
        out += fmt::format("{}, round {}: {}\n", row.entry.name, run.round, failure(run));
  return out;
}

std::string search_table(const Comparison& comparison) {
  std::vector<std::vector<std::string>> lines{
      {"strategy", "chosen", "trials", "samples each", "cost"}};
  lines.reserve(comparison.rows.size() + 1);
  for (const Row& row : comparison.rows) {
    if (!row.search) continue;
    std::vector<std::string> chosen;
    for (const JobOption& option : row.search->options())
      chosen.push_back(fmt::format("{} {}", option.name, option.value));
    std::string text =
        chosen.empty() ? "none: every trial failed" : fmt::format("{}", fmt::join(chosen, ", "));
    if (const auto edges = at_the_edge(*row.search); !edges.empty())
      text += fmt::format(" ({} at the edge of what was tried)", fmt::join(edges, ", "));
    lines.push_back({row.entry.name, text, fmt::format("{}", row.search->trials.size()),
                     fmt::format("{}", row.search->samples_each),
                     fmt::format("{:.0f} s", row.search->seconds())});
  }
  return lines.size() == 1 ? "" : aligned(lines);
}

}  // namespace skein::compare
