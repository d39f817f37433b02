#include "keep/checkpoint_state.h"

#include <fmt/format.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>

#include "skein/error.h"

namespace skein {
namespace {

constexpr std::int64_t kMostCount = std::numeric_limits<std::int64_t>::max();

using Json = nlohmann::json;

// The entries of one file, each with its own check.
class Entries {
 public:
  explicit Entries(const std::filesystem::path& path) : path_(path) {
    std::ifstream file(path);
    if (!file)
      throw ConfigError(fmt::format("cannot read {}: {}; is this a checkpoint folder?",
                                    path.string(), std::strerror(errno)));
    try {
      json_ = Json::parse(file);
    } catch (const Json::exception&) {
      throw ConfigError(
          fmt::format("{} is damaged: it is not JSON, as Skein writes it", path.string()));
    }
    if (!json_.is_object())
      throw ConfigError(fmt::format("{}: expected a JSON object", path.string()));
  }

  bool has(const char* key) const { return json_.contains(key); }

  const Json& at(const char* key) const {
    const auto found = json_.find(key);
    if (found == json_.end())
      throw ConfigError(fmt::format("{}: there is no '{}'", path_.string(), key));
    return *found;
  }

  std::int64_t count(const char* key, std::int64_t low = 0, std::int64_t high = kMostCount) const {
    return whole(key, at(key), low, high);
  }

  std::vector<std::int64_t> counts(const char* key) const {
    std::vector<std::int64_t> out;
    for (const Json& each : list(key)) out.push_back(whole(key, each, 0, kMostCount));
    return out;
  }

  bool flag(const char* key) const {
    if (!at(key).is_boolean()) refuse(key, at(key), "true or false");
    return at(key).get<bool>();
  }

  std::string text(const char* key) const {
    if (!at(key).is_string()) refuse(key, at(key), "text");
    return at(key).get<std::string>();
  }

  std::vector<std::string> texts(const char* key) const {
    std::vector<std::string> out;
    for (const Json& each : list(key)) {
      if (!each.is_string()) refuse(key, each, "text");
      out.push_back(each.get<std::string>());
    }
    return out;
  }

  std::map<std::string, std::string> named_texts(const char* key) const {
    if (!at(key).is_object()) refuse(key, at(key), "an object");
    std::map<std::string, std::string> out;
    for (const auto& [name, value] : at(key).items()) {
      if (!value.is_string()) refuse(key, value, "text");
      out[name] = value.get<std::string>();
    }
    return out;
  }

 private:
  [[noreturn]] void refuse(const char* key, const Json& value, const std::string& expected) const {
    throw ConfigError(
        fmt::format("{}: {} = {}: expected {}", path_.string(), key, value.dump(), expected));
  }

  const Json& list(const char* key) const {
    if (!at(key).is_array()) refuse(key, at(key), "a list");
    return at(key);
  }

  std::int64_t whole(const char* key, const Json& value, std::int64_t low,
                     std::int64_t high) const {
    const bool fits = value.is_number_integer() &&
                      (!value.is_number_unsigned() ||
                       value.get<std::uint64_t>() <=
                           static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max())) &&
                      value.get<std::int64_t>() >= low && value.get<std::int64_t>() <= high;
    if (!fits) refuse(key, value, fmt::format("a whole number from {} to {}", low, high));
    return value.get<std::int64_t>();
  }

  std::filesystem::path path_;
  Json json_;
};

}  // namespace

std::string print_state(const CheckpointState& state) {
  Json json{{"run_id", state.run_id},
            {"saved", state.saved},
            {"samples", state.samples},
            {"steps", state.steps},
            {"reference", state.batch_reference},
            {"round_reference", state.round_reference},
            {"workers", state.workers},
            {"order", state.order},
            {"ordered", state.ordered},
            {"identity", state.identity},
            {"values", state.values},
            {"optimizer", state.optimizer}};
  if (state.data)
    json.update({{"epoch", state.data->epoch},
                 {"offset", state.data->offset},
                 {"next_block", state.data->next_block},
                 {"returned_blocks", state.data->returned_blocks}});
  return json.dump(2) + "\n";
}

void check_values(const std::map<std::string, std::string>& values) {
  constexpr std::size_t kMost = std::size_t{1} << 20;
  std::size_t bytes = 0;
  for (const auto& [name, value] : values) {
    bytes += name.size() + value.size();
    try {
      static_cast<void>(Json{{name, value}}.dump());
    } catch (const Json::exception&) {
      throw ConfigError(
          fmt::format("save_checkpoint(): the name or value of {} is no text; expected UTF-8",
                      Json(name).dump(-1, ' ', true, Json::error_handler_t::replace)));
    }
  }
  if (bytes > kMost)
    throw ConfigError(fmt::format(
        "save_checkpoint(): values of {} bytes; expected {} at most: what is large is a file",
        bytes, kMost));
}

std::string print_values(const std::map<std::string, std::string>& values, std::size_t longest) {
  std::string all;
  for (const auto& [name, value] : values)
    all += fmt::format("{}{} = {}", all.empty() ? "" : ", ", name, value);
  std::string shown;
  std::size_t letters = 0;
  for (std::size_t at = 0; at < all.size();) {
    std::size_t end = at + 1;  // of the letter that begins here
    while (end < all.size() && (static_cast<unsigned char>(all[end]) & 0xc0) == 0x80) ++end;
    const auto first = static_cast<unsigned char>(all[at]);
    const bool second_page =  // U+0080 to U+009f
        first == 0xc2 && end == at + 2 && static_cast<unsigned char>(all[at + 1]) < 0xa0;
    std::string letter = all.substr(at, end - at);
    if (first < 0x20 || first == 0x7f) letter = fmt::format("\\x{:02x}", first);
    if (second_page) letter = fmt::format("\\x{:02x}", static_cast<unsigned char>(all[at + 1]));
    letters += first < 0x20 || first == 0x7f || second_page ? letter.size() : 1;
    if (letters > longest) return shown + "…";
    shown += letter;
    at = end;
  }
  return shown;
}

CheckpointState read_state(const std::filesystem::path& checkpoint) {
  const Entries entries(checkpoint / "state.json");
  CheckpointState state;
  if (entries.has("run_id")) state.run_id = entries.text("run_id");
  if (entries.has("saved")) state.saved = entries.text("saved");
  state.samples = entries.count("samples");
  state.steps = entries.count("steps");
  state.batch_reference = entries.count("reference");
  if (entries.has("round_reference")) state.round_reference = entries.count("round_reference");
  state.workers = static_cast<int>(entries.count("workers", 1, 1 << 20));
  if (entries.has("order")) state.order = entries.texts("order");
  if (entries.has("optimizer")) state.optimizer = entries.named_texts("optimizer");
  if (entries.has("ordered")) state.ordered = entries.flag("ordered");
  state.identity = entries.named_texts("identity");
  if (entries.has("values")) state.values = entries.named_texts("values");
  if (!entries.has("epoch") && !entries.has("offset")) return state;
  state.data = CheckpointState::Data{entries.count("epoch"), entries.count("offset"), 0, {}};
  if (entries.has("next_block")) state.data->next_block = entries.count("next_block");
  if (entries.has("returned_blocks"))
    state.data->returned_blocks = entries.counts("returned_blocks");
  return state;
}

}  // namespace skein
