#include "cli/config.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <toml++/toml.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "cli/suggest.h"
#include "skein/error.h"

namespace skein {
namespace {

int line_of(const toml::node& node) { return static_cast<int>(node.source().begin.line); }

[[noreturn]] void refuse(const std::string& path, int line, const std::string& what) {
  throw ConfigError(fmt::format("{}:{}: {}", path, line, what));
}

std::string scalar(const toml::node& node, const std::string& key, const std::string& path) {
  if (const auto* text = node.as_string()) return text->get();
  if (const auto* number = node.as_integer()) return fmt::format("{}", number->get());
  if (const auto* number = node.as_floating_point()) return fmt::format("{}", number->get());
  if (const auto* flag = node.as_boolean()) return flag->get() ? "true" : "false";
  refuse(path, line_of(node),
         fmt::format("the value of '{}' is a {}: expected text, a number, true, false or a list of "
                     "these",
                     key,
                     node.is_table()   ? "table"
                     : node.is_array() ? "nested list"
                                       : "date or time"));
}

ConfigEntry entry(const std::string& key, const toml::node& node, const std::string& path) {
  ConfigEntry out{key, "", node.is_boolean(), line_of(node)};
  const toml::array* list = node.as_array();
  if (list == nullptr) {
    out.value = scalar(node, key, path);
    return out;
  }
  for (const toml::node& item : *list) {
    if (!out.value.empty()) out.value += ',';
    out.value += scalar(item, key, path);
  }
  return out;
}

void add_table(const std::string& name, const toml::table& table, const std::string& path,
               std::vector<ConfigEntry>& out) {
  static const std::vector<std::string> known{"strategy", "model", "data"};
  if (std::find(known.begin(), known.end(), name) == known.end())
    refuse(path, line_of(table),
           fmt::format("unknown table [{}]: expected [{}]{}", name, fmt::join(known, "], ["),
                       did_you_mean(name, known)));
  for (const auto& [key, node] : table) {
    const std::string full = fmt::format("{}.{}", name, key.str());
    ConfigEntry setting = entry(full, node, path);
    out.push_back({"set", full + "=" + setting.value, false, setting.line});
  }
}

// In the file's order: toml++ sorts by key.
template <typename T>
void sort_by_line(std::vector<T>& all) {
  std::stable_sort(all.begin(), all.end(), [](const T& a, const T& b) { return a.line < b.line; });
}

std::vector<ConfigEntry> entries_of(const toml::table& root, const std::string& path) {
  std::vector<ConfigEntry> out;
  for (const auto& [key, node] : root) {
    const std::string name(key.str());
    if (const toml::table* table = node.as_table())
      add_table(name, *table, path, out);
    else
      out.push_back(entry(name, node, path));
  }
  sort_by_line(out);
  return out;
}

std::vector<ConfigTable> tables_of(const toml::node& entries, const std::string& path) {
  std::vector<ConfigTable> out;
  const toml::table* all = entries.as_table();
  if (all == nullptr) refuse(path, line_of(entries), "'entries': expected tables [entries.NAME]");
  for (const auto& [key, node] : *all) {
    const std::string name(key.str());
    const toml::table* table = node.as_table();
    if (table == nullptr)
      refuse(path, line_of(node),
             fmt::format("'entries.{0}': expected a table [entries.{0}]", name));
    out.push_back({name, entries_of(*table, path), line_of(node)});
  }
  sort_by_line(out);
  return out;
}

}  // namespace

std::vector<ConfigEntry> parse_config(const std::string& text, const std::string& path,
                                      std::vector<ConfigTable>* tables) {
  toml::table root;
  try {
    root = toml::parse(text, path);
  } catch (const toml::parse_error& error) {
    refuse(path, static_cast<int>(error.source().begin.line), std::string(error.description()));
  }
  if (const toml::node* entries = root.get("entries"); entries != nullptr && tables != nullptr) {
    *tables = tables_of(*entries, path);
    root.erase("entries");
  }
  return entries_of(root, path);
}

std::vector<ConfigEntry> read_config(const std::string& path, std::vector<ConfigTable>* tables) {
  std::error_code ignored;
  if (std::filesystem::is_directory(path, ignored))
    throw ConfigError(fmt::format("--config {}: this is a folder; expected a TOML file", path));
  std::ifstream in(path, std::ios::binary);
  std::string text{std::istreambuf_iterator<char>(in), {}};
  if (!in.is_open() || in.bad())
    throw ConfigError(
        fmt::format("--config {}: cannot read the file: {}", path, std::strerror(errno)));
  return parse_config(text, path, tables);
}

}  // namespace skein
