#include "sim/profile.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <chrono>
#include <system_error>

#include "core/atomic_file.h"
#include "sim/profiles/builtin.h"
#include "sim/profiles/json_field.h"
#include "skein/error.h"

namespace skein::sim {
namespace fs = std::filesystem;
namespace {

// Far above every real model, yet no sum overflows and every time keeps its nanoseconds as a double
// of milliseconds.
constexpr std::uintmax_t kMostBytes = std::uintmax_t{16} << 20;
constexpr std::size_t kMostLayers = 100'000;
constexpr std::size_t kMostTensors = 100'000;                  // of one layer
constexpr std::int64_t kMostElements = std::int64_t{1} << 40;  // of all tensors together, too
constexpr std::int64_t kMostSamples = std::int64_t{1} << 31;
constexpr std::chrono::hours kMostTime(1);

Layer read_layer(const JsonField& field) {
  field.require_keys({"name", "parameters", "forward_ms", "backward_ms"});
  Layer layer;
  layer.name = field["name"].text();
  for (const JsonField& tensor : field["parameters"].elements(0, kMostTensors))
    layer.parameters.push_back(tensor.count(kMostElements));
  layer.forward = field["forward_ms"].time(kMostTime);
  layer.backward = field["backward_ms"].time(kMostTime);
  return layer;
}

std::vector<Layer> read_layers(const JsonField& field) {
  std::vector<Layer> layers;
  std::int64_t elements = 0;
  for (const JsonField& each : field.elements(1, kMostLayers)) {
    layers.push_back(read_layer(each));
    for (const std::int64_t tensor : layers.back().parameters) elements += tensor;
    if (elements > kMostElements)
      each.fail(
          fmt::format("{} parameters up to here, expected at most {}", elements, kMostElements));
  }
  if (elements == 0) field.fail("no parameters, expected some in at least one layer");
  return layers;
}

double to_json(Duration time) { return Milliseconds(time).count(); }

std::string layer_line(const Layer& layer) {
  const nlohmann::ordered_json line{{"name", layer.name},
                                    {"parameters", layer.parameters},
                                    {"forward_ms", to_json(layer.forward)},
                                    {"backward_ms", to_json(layer.backward)}};
  return line.dump();
}

// One layer a line, for people and for diff.
std::string print_profile(const Profile& profile) {
  const auto text = [](const auto& value) { return nlohmann::json(value).dump(); };
  std::vector<std::string> layers;
  for (const Layer& layer : profile.layers) layers.push_back(layer_line(layer));
  return fmt::format(
      "{{\n\"name\": {},\n\"source\": {},\n\"batch\": {},\n\"update_ms\": {},\n"
      "\"layers\": [\n{}\n]\n}}\n",
      text(profile.name), text(profile.source), profile.batch, text(to_json(profile.update)),
      fmt::join(layers, ",\n"));
}

}  // namespace

std::int64_t Profile::parameters() const {
  std::int64_t sum = 0;
  for (const Layer& layer : layers)
    for (const std::int64_t elements : layer.parameters) sum += elements;
  return sum;
}

std::int64_t Profile::tensors() const {
  std::size_t sum = 0;
  for (const Layer& layer : layers) sum += layer.parameters.size();
  return static_cast<std::int64_t>(sum);
}

Duration Profile::forward() const {
  Duration sum{};
  for (const Layer& layer : layers) sum += layer.forward;
  return sum;
}

Duration Profile::backward() const {
  Duration sum{};
  for (const Layer& layer : layers) sum += layer.backward;
  return sum;
}

Profile read_profile(const fs::path& path) {
  const nlohmann::json json = read_json(path, kMostBytes);
  const JsonField field(json, path);
  field.require_keys({"name", "source", "batch", "update_ms", "layers"});
  Profile profile;
  profile.name = field["name"].text();
  profile.source = field["source"].text();
  profile.batch = field["batch"].count(kMostSamples);
  profile.update = field["update_ms"].time(kMostTime);
  profile.layers = read_layers(field["layers"]);
  return profile;
}

void write_profile(const fs::path& path, const Profile& profile) {
  std::string text;
  try {
    text = print_profile(profile);
  } catch (const nlohmann::json::exception&) {
    throw Error(
        fmt::format("cannot write '{}': a name in the profile is not UTF-8 text", path.string()));
  }
  write_whole(path, text);
}

Profile find_profile(const std::string& name_or_path) {
  if (auto builtin = builtin_profile(name_or_path)) return *std::move(builtin);
  std::error_code ignored;
  if (fs::exists(name_or_path, ignored)) return read_profile(name_or_path);
  throw ConfigError(fmt::format("no profile '{}': expected {} or the path of a profile file",
                                name_or_path, fmt::join(builtin_profile_names(), ", ")));
}

}  // namespace skein::sim
