#include "compare/entries.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <set>

#include "core/spec.h"
#include "skein/error.h"

namespace skein::compare {
namespace {

std::string trimmed(const std::string& text) {
  const std::size_t first = text.find_first_not_of(" \t\n");
  if (first == std::string::npos) return "";
  return text.substr(first, text.find_last_not_of(" \t\n") - first + 1);
}

// What the comparison gives to every run: an entry that had its own would write over another's.
const std::set<std::string>& reserved() {
  static const std::set<std::string> names{"out",    "json",  "trace",  "quiet",
                                           "config", "seed",  "resume", "overwrite",
                                           "sweep",  "swarm", "help",   "page"};
  return names;
}

void add_option(Entry& entry, const std::string& piece, const KnownOptions& known,
                const std::string& where) {
  const std::size_t equals = piece.find('=');
  const std::string key = trimmed(piece.substr(0, equals));
  if (equals == std::string::npos || key.empty() || equals + 1 == piece.size())
    throw ConfigError(fmt::format("{}: '{}' is no option; expected KEY=VALUE", where, piece));
  put(entry.options, entry_option(key, trimmed(piece.substr(equals + 1)), known, where));
  entry.name += fmt::format(" {}", piece);
}

// Beside the folders of entries there are the comparison's own files.
void refuse_own_file(const Entry& entry, const std::string& folder) {
  for (const std::string own : {kCurrent, "compare.json", "report.html"})
    if (folder == own || folder == own + ".tmp")
      throw ConfigError(
          fmt::format("entry '{}': the comparison itself has '{}' in its folder; expected another "
                      "name",
                      entry.name, folder));
}

}  // namespace

JobOption entry_option(const std::string& key, const std::string& value, const KnownOptions& known,
                       const std::string& where) {
  if (reserved().count(key) != 0)
    throw ConfigError(fmt::format(
        "{}: '{}' is given to every run by the comparison itself; leave it out", where, key));
  const auto option = known.find(key);
  if (key == "set") return {"set", value, false};
  if (option == known.end())
    return {"set", (key.find('.') == std::string::npos ? "strategy." + key : key) + "=" + value,
            false};
  if (option->second && value != "true" && value != "false")
    throw ConfigError(fmt::format("{}: {} {}: expected true or false", where, key, value));
  return {key, value, option->second};
}

std::vector<Entry> parse_entries(const std::string& text, const KnownOptions& known) {
  const std::string where = fmt::format("--strategies '{}'", text);
  std::vector<Entry> entries;
  for (const std::string& part : split_text(text, ',')) {
    const std::string piece = trimmed(part);
    if (piece.empty()) throw ConfigError(fmt::format("{}: an entry is empty", where));
    const std::size_t colon = piece.find(':'), equals = piece.find('=');
    if (equals < colon) {
      if (entries.empty())
        throw ConfigError(fmt::format("{}: '{}' comes before any strategy", where, piece));
      add_option(entries.back(), piece, known, where);
      continue;
    }
    Entry entry;
    entry.name = trimmed(piece.substr(0, colon));
    put(entry.options, {"strategy", entry.name, false});
    if (colon != std::string::npos)
      add_option(entry, trimmed(piece.substr(colon + 1)), known, where);
    entries.push_back(std::move(entry));
  }
  return entries;
}

void check_names(const std::vector<Entry>& entries) {
  if (entries.empty())
    throw ConfigError(
        "nothing to compare; expected --strategies 'allreduce, dear' or [entries.NAME] in the "
        "--config file");
  std::set<std::string> seen;
  for (const Entry& entry : entries)
    if (!seen.insert(entry.name).second)
      throw ConfigError(
          fmt::format("'{}' is there twice: expected entries that differ", entry.name));
}

std::vector<std::string> folder_names(const std::vector<Entry>& entries) {
  std::vector<std::string> out;
  out.reserve(entries.size());
  for (const Entry& entry : entries) {
    std::string name;
    for (const char c : entry.name) {
      const bool kept = std::isalnum(static_cast<unsigned char>(c)) != 0 ||
                        std::string(".=-_").find(c) != std::string::npos;
      if (kept)
        name += c;
      else if (!name.empty() && name.back() != '-')
        name += '-';
    }
    if (name.empty() || name.front() == '.') name.insert(0, "entry");
    refuse_own_file(entry, name);
    std::string unique = name;
    for (int number = 2; std::find(out.begin(), out.end(), unique) != out.end(); ++number)
      unique = fmt::format("{}-{}", name, number);
    out.push_back(unique);
  }
  return out;
}

}  // namespace skein::compare
