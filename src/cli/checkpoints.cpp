// skein checkpoints: lists the checkpoints of a run and finds out whether they are whole.
#include <fmt/format.h>

#include <filesystem>
#include <memory>

#include "cli/commands.h"
#include "cli/json_output.h"
#include "core/units.h"
#include "keep/checkpoint_files.h"
#include "keep/checkpoint_state.h"
#include "skein/checkpoint.h"
#include "skein/error.h"

namespace skein {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

std::int64_t bytes_in(const fs::path& folder) {
  std::uintmax_t bytes = 0;
  std::error_code none;
  for (const auto& entry : fs::directory_iterator(folder, none))
    if (const auto size = entry.file_size(none); !none) bytes += size;
  return static_cast<std::int64_t>(bytes);
}

Json look_at(const fs::path& checkpoint) {
  const Inspection found = inspect(checkpoint);
  Json row{{"path", checkpoint.string()},
           {"samples", samples_of(checkpoint)},
           {"steps", nullptr},
           {"saved", nullptr},
           {"run_id", nullptr},
           {"workers", nullptr},
           {"values", Json::object()},
           {"bytes", bytes_in(checkpoint)},
           {"checksums", found.checksums},
           {"whole", found.whole()},
           {"damage", found.damage}};
  try {
    const CheckpointState state = read_state(checkpoint);
    row["samples"] = state.samples;
    row["steps"] = state.steps;
    row["workers"] = state.workers;
    row["values"] = state.values;
    if (!state.saved.empty()) row["saved"] = state.saved;
    if (!state.run_id.empty()) row["run_id"] = state.run_id;
  } catch (const ConfigError&) {
    // `damage` says why.
  }
  return row;
}

std::string verdict(const Json& row) {
  if (row["whole"] == false) return "DAMAGED: " + row["damage"].get<std::string>();
  return row["checksums"] == true ? "whole" : "no checksums: an older version of Skein made it";
}

// A program's own, as far as they fit in a line.
std::string values_of(const Json& row) {
  constexpr std::size_t kLongest = 60;
  const std::string text = print_values(row["values"].get<Values>(), kLongest);
  return text.empty() ? "" : "; " + text;
}

std::string text_of(const Json& value) {
  return value.is_null() ? "-" : value.is_string() ? value.get<std::string>() : value.dump();
}

std::string table(const Json& rows) {
  std::string text =
      fmt::format("{:>12}{:>10}  {:<25}{:>10}  {}\n", "samples", "steps", "saved", "size", "state");
  for (const Json& row : rows)
    text += fmt::format("{:>12}{:>10}  {:<25}{:>10}  {}\n", text_of(row["samples"]),
                        text_of(row["steps"]), text_of(row["saved"]),
                        print_bytes(row["bytes"].get<double>()), verdict(row) + values_of(row));
  return text;
}

class Checkpoints {
 public:
  explicit Checkpoints(CLI::App& command) : options_(command) {
    command.add_option(
        "DIR", folder_,
        "the --out of a run, the folder in which a program saves, or one checkpoint");
    options_.declare_common();
  }

  int operator()() {
    options_.read_config_file();
    if (folder_.empty())
      throw ConfigError(
          "which folder? Usage: skein checkpoints DIR, the --out of a run or the folder in which a "
          "program saves");
    const JsonOutput json(options_, "checkpoints");
    const bool one = fs::exists(fs::path(folder_) / "state.json");
    const auto all = one ? std::vector<fs::path>{folder_} : numbered_in(checkpoint_folder(folder_));
    if (all.empty())
      throw ConfigError(
          fmt::format("{0}: no checkpoints there; expected the --out of a run, with "
                      "{0}/checkpoints/SAMPLES, or "
                      "the folder in which a program saves, with {0}/SAMPLES",
                      folder_));
    Json rows = Json::array();
    bool whole = true;
    for (const fs::path& each : all) {
      rows.push_back(look_at(each));
      whole = whole && rows.back()["whole"] == true;
    }
    fmt::print("{}", table(rows));
    json.write({{"checkpoints", rows}}, options_.seed(), options_.config());
    return whole ? 0 : 1;
  }

 private:
  CommandOptions options_;
  std::string folder_;
};

}  // namespace

void add_checkpoints(CLI::App& app, Invocation& invocation) {
  CLI::App& command =
      *app.add_subcommand("checkpoints", "list a run's checkpoints and check that they are whole");
  command.footer(
      "Reads every file and compares it with its checksum. The exit code is 1 if one is "
      "damaged.\n\n"
      "Example: skein checkpoints out/first");
  auto checkpoints = std::make_shared<Checkpoints>(command);
  command.callback([checkpoints, &invocation] {
    invocation.action = [checkpoints] { return (*checkpoints)(); };
  });
}

}  // namespace skein
