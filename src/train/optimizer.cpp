#include "train/optimizer.h"

#include <utility>

#include "core/spec.h"
#include "optimize/adamw.h"
#include "optimize/sgd.h"

namespace skein {

std::unique_ptr<Optimizer> make_optimizer(const TrainOptions& job, std::size_t size,
                                          Allocate allocate) {
  if (job.optimizer == "adamw")
    return std::make_unique<Adamw>(size, AdamwOptions{.weight_decay = job.weight_decay},
                                   std::move(allocate));
  return std::make_unique<Sgd>(size, SgdOptions{job.momentum, job.weight_decay, job.nesterov},
                               std::move(allocate));
}

namespace {

ParameterGroup parse_parameter_group(const std::string& text) {
  constexpr double kMost = 1e9;
  Spec spec("--groups", text);
  ParameterGroup group = skein::group(spec.name());
  bool any = false;
  const auto number = [&](const char* key) {
    const double value = spec.number(key, 0, 0, kMost);
    any = any || spec.has(key);
    return spec.has(key) ? std::optional(value) : std::nullopt;
  };
  if (spec.has("lr") && spec.has("factor")) spec.fail("lr and factor: expected one of the two");
  if (const auto rate = number("lr")) group.learning_rate(*rate);
  if (const auto factor = number("factor")) group.factor(*factor);
  if (const auto decay = number("weight-decay")) group.weight_decay(*decay);
  if (const auto momentum = number("momentum")) group.momentum(*momentum);
  if (const std::string frozen = spec.text("frozen", ""); !frozen.empty()) {
    if (frozen != "true" && frozen != "false")
      spec.fail("frozen = '" + frozen + "': expected true or false");
    group.frozen(frozen == "true");
    any = true;
  }
  spec.finish();
  if (!any)
    spec.fail("expected lr, factor, weight-decay, momentum or frozen, as in head.*:factor=10");
  return group;
}

}  // namespace

std::vector<ParameterGroup> parse_parameter_groups(const std::string& text) {
  const std::vector<std::string> pieces = split_text(text, ';');
  std::vector<ParameterGroup> groups;
  groups.reserve(pieces.size());
  for (const std::string& piece : pieces) {
    const std::size_t begin = piece.find_first_not_of(' ');
    if (begin == std::string::npos) continue;
    const std::size_t end = piece.find_last_not_of(' ') + 1;
    groups.push_back(parse_parameter_group(piece.substr(begin, end - begin)));
  }
  return groups;
}

}  // namespace skein
