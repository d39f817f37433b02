#include "compare/difference.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "compare/table.h"
#include "core/field_names.h"
#include "skein/error.h"

namespace skein::compare {
namespace {

using Json = nlohmann::json;

const Json* entry_named(const Json& comparison, const std::string& name) {
  for (const Json& entry : comparison.at("entries"))
    if (entry.at("name") == name) return &entry;
  return nullptr;
}

// A target that no round reached took them longer than any time: that is known of each of them.
Spread counted(const std::string& key, Spread spread) {
  if (key != field::kSecondsToTarget || spread.count > 0) return spread;
  spread.low = spread.high = INFINITY;
  spread.count = spread.of;
  return spread;
}

EntryChange change_of(const Json& before, const Json& after) {
  EntryChange out{before.at("name").get<std::string>(), true, true, {}};
  for (const Figure& each : all_figures()) {
    const Json &old = before.at("figures"), &now = after.at("figures");
    if (!old.contains(each.key) || !now.contains(each.key)) continue;
    FigureChange change;
    change.key = each.key;
    change.before = spread_from_json(old.at(each.key));
    change.after = spread_from_json(now.at(each.key));
    change.apart = apart(counted(each.key, change.before), counted(each.key, change.after));
    out.figures.push_back(std::move(change));
  }
  return out;
}

std::string percent_change(const FigureChange& change) {
  const double ratio = change.ratio();
  return ratio == 0 ? "" : fmt::format("{:+.1f} %", 100 * (ratio - 1));
}

std::string verdict(const FigureChange& change) {
  if (change.apart != Apart::beyond) return apart_name(change.apart);
  const bool more = counted(change.key, change.after).low > counted(change.key, change.before).high;
  return more == figure(change.key).more_is_better ? "beyond: better" : "beyond: worse";
}

}  // namespace

double FigureChange::ratio() const {
  if (!before.median || !after.median || *before.median == 0) return 0;
  return *after.median / *before.median;
}

std::vector<EntryChange> changes_between(const Json& before, const Json& after) {
  std::vector<EntryChange> out;
  try {
    for (const Json& entry : before.at("entries")) {
      const std::string name = entry.at("name");
      const Json* other = entry_named(after, name);
      out.push_back(other != nullptr ? change_of(entry, *other)
                                     : EntryChange{name, true, false, {}});
    }
    for (const Json& entry : after.at("entries"))
      if (entry_named(before, entry.at("name")) == nullptr)
        out.push_back({entry.at("name").get<std::string>(), false, true, {}});
  } catch (const Json::exception& error) {
    throw Error(fmt::format("this is no comparison: {}", error.what()));
  }
  return out;
}

std::string change_table(const std::vector<EntryChange>& changes) {
  std::vector<std::vector<std::string>> lines{
      {"strategy", "figure", "before", "after", "change", "spread"}};
  for (const EntryChange& entry : changes) {
    if (!entry.before || !entry.after)
      lines.push_back({entry.name, entry.before ? "only before" : "only after", "", "", "", ""});
    for (const FigureChange& change : entry.figures)
      lines.push_back({entry.name, figure(change.key).title,
                       print_spread(figure(change.key), change.before),
                       print_spread(figure(change.key), change.after), percent_change(change),
                       verdict(change)});
  }
  return aligned(lines);
}

std::vector<std::string> change_sentences(const std::vector<EntryChange>& changes) {
  struct Found {
    double size;
    std::string text;
  };
  std::vector<Found> found;
  int within = 0, unknown = 0;
  for (const EntryChange& entry : changes)
    for (const FigureChange& change : entry.figures) {
      within += change.apart == Apart::within;
      unknown += change.apart == Apart::unknown;
      if (change.apart != Apart::beyond) continue;
      const Figure& what = figure(change.key);
      const double ratio = change.ratio();
      const bool better = verdict(change) == "beyond: better";
      found.push_back(
          {ratio > 0 ? std::abs(std::log(ratio)) : INFINITY,
           fmt::format("{}: {} is {}, from {} to {}{}, beyond the spread.", entry.name, what.title,
                       better ? "better" : "worse", print_spread(what, change.before),
                       print_spread(what, change.after),
                       ratio > 0 ? fmt::format(" ({})", percent_change(change)) : "")});
    }
  std::stable_sort(found.begin(), found.end(),
                   [](const Found& a, const Found& b) { return a.size > b.size; });
  std::vector<std::string> out;
  out.reserve(found.size() + 2);
  for (Found& each : found) out.push_back(std::move(each.text));
  if (within > 0)
    out.push_back(fmt::format("{} figures differ by no more than their rounds do.", within));
  if (unknown > 0)
    out.push_back(fmt::format(
        "Of {} figures nobody knows the spread: it takes at least two rounds on both sides.",
        unknown));
  return out;
}

Json to_json(const std::vector<EntryChange>& changes) {
  Json out = Json::array();
  for (const EntryChange& entry : changes) {
    Json figures = Json::object();
    for (const FigureChange& change : entry.figures) {
      Json line{{"before", to_json(change.before)},
                {"after", to_json(change.after)},
                {"ratio", change.ratio() > 0 ? Json(change.ratio()) : Json()},
                {"spread", apart_name(change.apart)}};
      if (change.apart == Apart::beyond) line["better"] = verdict(change) == "beyond: better";
      figures[change.key] = std::move(line);
    }
    out.push_back({{"name", entry.name},
                   {"in_before", entry.before},
                   {"in_after", entry.after},
                   {"figures", std::move(figures)}});
  }
  return out;
}

}  // namespace skein::compare
