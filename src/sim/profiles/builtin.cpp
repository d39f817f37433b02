#include "sim/profiles/builtin.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>

#include "core/check.h"

namespace skein::sim {
namespace {

using std::chrono::microseconds;

struct Builtin {
  const char* name;
  Architecture (*architecture)();
  std::int64_t batch;
  Duration iteration;
};

constexpr std::array kBuiltins{
    Builtin{"resnet50", resnet50, 64, microseconds(229'400)},
    Builtin{"densenet201", densenet201, 32, microseconds(212'500)},
    Builtin{"inceptionv4", inceptionv4, 64, microseconds(353'200)},
    Builtin{"bert-base", bert_base, 64, microseconds(292'100)},
    Builtin{"bert-large", bert_large, 32, microseconds(422'200)},
};

std::vector<Duration> split(Duration whole, const Architecture& architecture) {
  std::int64_t operations = 0;
  for (const LayerWork& layer : architecture) operations += layer.operations();
  SKEIN_CHECK(operations > 0, "no work to split {} ns by", whole.count());

  std::vector<Duration> parts;
  Duration rest = whole;
  for (const LayerWork& layer : architecture) {
    const double share = static_cast<double>(layer.operations()) / static_cast<double>(operations);
    parts.emplace_back(static_cast<Duration::rep>(share * static_cast<double>(whole.count())));
    rest -= parts.back();
  }
  *std::max_element(parts.begin(), parts.end()) += rest;
  return parts;
}

}  // namespace

Profile spread(const Architecture& architecture, std::int64_t batch, Duration iteration) {
  Profile profile;
  profile.batch = batch;
  const Duration forward_time = iteration / 3;
  const auto forward = split(forward_time, architecture);
  const auto backward = split(iteration - forward_time, architecture);
  for (std::size_t i = 0; i < architecture.size(); ++i)
    profile.layers.push_back(
        {architecture[i].name, architecture[i].parameters, forward[i], backward[i]});
  return profile;
}

std::vector<std::string> builtin_profile_names() {
  std::vector<std::string> names;
  names.reserve(kBuiltins.size());
  for (const Builtin& builtin : kBuiltins) names.emplace_back(builtin.name);
  return names;
}

std::optional<Profile> builtin_profile(std::string_view name) {
  const auto found = std::find_if(kBuiltins.begin(), kBuiltins.end(),
                                  [&](const Builtin& builtin) { return builtin.name == name; });
  if (found == kBuiltins.end()) return std::nullopt;
  Profile profile = spread(found->architecture(), found->batch, found->iteration);
  profile.name = found->name;
  profile.source = fmt::format(
      "published: {:.1f} ms per iteration of {} samples on one RTX 2080 Ti; a third of it forward, "
      "spread over the layers by their arithmetic",
      milliseconds(found->iteration), found->batch);
  return profile;
}

}  // namespace skein::sim
