#include "sim/profiles/json_field.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <iterator>
#include <system_error>

#include "core/check.h"
#include "skein/error.h"

namespace skein::sim {
namespace fs = std::filesystem;
using Json = nlohmann::json;

namespace {

std::string read_text(const fs::path& path, std::uintmax_t most_bytes) {
  const auto fail = [&](const std::string& why) {
    throw ConfigError(fmt::format("{}: {}", path.string(), why));
  };
  std::error_code code;
  const fs::file_type type = fs::status(path, code).type();
  if (type == fs::file_type::not_found) fail("no such file");
  if (type == fs::file_type::none) fail(code.message());
  if (type != fs::file_type::regular) fail("expected a file, found something else");
  const std::uintmax_t size = fs::file_size(path, code);
  if (code) fail(code.message());
  if (size > most_bytes) fail(fmt::format("{} bytes, expected at most {}", size, most_bytes));

  std::ifstream file(path, std::ios::binary);
  if (!file) fail(std::strerror(errno));
  std::string text(std::istreambuf_iterator<char>(file), {});
  if (file.bad()) fail("cannot be read");
  return text;
}

std::string shown(const Json& value) {
  constexpr std::size_t kMost = 40;
  if (value.is_array()) return "a list";
  if (value.is_object()) return "an object";
  const std::string text = value.dump(-1, ' ', /*ensure_ascii=*/true);
  return text.size() <= kMost ? text : text.substr(0, kMost) + "...";
}

}  // namespace

Json read_json(const fs::path& path, std::uintmax_t most_bytes) {
  const std::string text = read_text(path, most_bytes);
  try {
    return Json::parse(text);
  } catch (const Json::exception& error) {
    // After the library's own number for it, "[json.exception.parse_error.101] ".
    const std::string_view what = error.what();
    const std::size_t start = what.find("] ");
    throw ConfigError(fmt::format("{}: not JSON: {}", path.string(),
                                  start == what.npos ? what : what.substr(start + 2)));
  }
}

void JsonField::require_keys(std::initializer_list<std::string_view> keys) const {
  if (!value_->is_object()) expected(fmt::format("an object with {}", fmt::join(keys, ", ")));
  for (const auto& [key, value] : value_->items())
    if (std::find(keys.begin(), keys.end(), key) == keys.end())
      fail(fmt::format("unknown key {}, expected {}", shown(key), fmt::join(keys, ", ")));
  for (const std::string_view key : keys)
    if (!value_->contains(key)) fail(fmt::format("no key \"{}\"", key));
}

JsonField JsonField::operator[](const char* key) const {
  SKEIN_CHECK(value_->is_object() && value_->contains(key), "{}: {} was not required", file_, key);
  return {(*value_)[key], file_, path_.empty() ? key : fmt::format("{}.{}", path_, key)};
}

std::vector<JsonField> JsonField::elements(std::size_t least, std::size_t most) const {
  if (!value_->is_array()) expected("a list");
  if (value_->size() < least || value_->size() > most)
    fail(fmt::format("a list of {}, expected {} to {}", value_->size(), least, most));
  std::vector<JsonField> out;
  for (const Json& each : *value_)
    out.push_back(JsonField(each, file_, fmt::format("{}[{}]", path_, out.size())));
  return out;
}

std::string JsonField::text() const {
  if (!value_->is_string()) expected("text");
  return value_->get<std::string>();
}

std::int64_t JsonField::count(std::int64_t most) const {
  // What is too large for the type comes out negative.
  const std::int64_t number = value_->is_number_integer() ? value_->get<std::int64_t>() : 0;
  if (number < 1 || number > most) expected(fmt::format("a whole number from 1 to {}", most));
  return number;
}

Duration JsonField::time(Milliseconds most) const {
  const Milliseconds time(value_->is_number() ? value_->get<double>() : -1);
  if (time < Milliseconds(0) || time > most)
    expected(fmt::format("milliseconds from 0 to {:.0f}", most.count()));
  return std::chrono::round<Duration>(time);
}

void JsonField::fail(const std::string& problem) const {
  throw ConfigError(fmt::format("{}: {}{}{}", file_, path_, path_.empty() ? "" : ": ", problem));
}

void JsonField::expected(const std::string& what) const {
  fail(fmt::format("expected {}, found {}", what, shown(*value_)));
}

}  // namespace skein::sim
