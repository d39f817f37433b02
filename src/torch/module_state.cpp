#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <set>

#include "skein/error.h"
#include "torch/safetensors.h"

namespace skein {
namespace {

struct Member {
  std::vector<std::string> names;
  torch::Tensor tensor;
};

// Every tensor of the module with all its names, in order of registration.
std::vector<Member> members_of(const torch::nn::Module& module) {
  std::vector<Member> members;
  std::map<const void*, std::size_t> known;
  const auto add = [&](const std::string& name, const torch::Tensor& tensor) {
    if (!tensor.defined()) return;
    const auto [at, is_new] = known.try_emplace(tensor.unsafeGetTensorImpl(), members.size());
    if (is_new) members.push_back({{}, tensor});
    members[at->second].names.push_back(name);
  };
  for (const auto& entry : module.named_parameters()) add(entry.key(), entry.value());
  for (const auto& entry : module.named_buffers()) add(entry.key(), entry.value());
  return members;
}

std::string describe(const torch::Tensor& tensor) {
  return fmt::format("{} [{}]", c10::toString(tensor.scalar_type()),
                     fmt::join(tensor.sizes(), ", "));
}

// What goes where.
using Copies = std::vector<std::pair<torch::Tensor, torch::Tensor>>;

Copies matched(const torch::nn::Module& module, const SafeTensors& file) {
  std::map<std::string, torch::Tensor> given;
  for (const NamedTensor& named : file.tensors) given[named.name] = named.tensor;

  std::vector<std::string> problems;
  Copies copies;
  std::set<std::string> expected;
  for (const Member& member : members_of(module)) {
    expected.insert(member.names.begin(), member.names.end());
    const auto present = std::find_if(member.names.begin(), member.names.end(),
                                      [&](const auto& name) { return given.count(name) > 0; });
    if (present == member.names.end()) {
      problems.push_back(fmt::format("missing: '{}'", member.names.front()));
      continue;
    }
    const torch::Tensor& value = given[*present];
    if (value.sizes() != member.tensor.sizes() ||
        value.scalar_type() != member.tensor.scalar_type())
      problems.push_back(fmt::format("'{}' is {}; expected {}", *present, describe(value),
                                     describe(member.tensor)));
    else
      copies.emplace_back(member.tensor, value);
  }
  for (const auto& [name, tensor] : given)
    if (!expected.count(name)) problems.push_back(fmt::format("unexpected: '{}'", name));
  if (!problems.empty())
    throw ConfigError(
        fmt::format("these tensors do not fit the module: {}", fmt::join(problems, "; ")));

  return copies;
}

}  // namespace

std::vector<NamedTensor> tensors_of(const torch::nn::Module& module) {
  std::vector<NamedTensor> tensors;
  for (const Member& member : members_of(module))
    tensors.push_back({member.names.front(), member.tensor});
  return tensors;
}

void check_fits(torch::nn::Module& module, const SafeTensors& file) { matched(module, file); }

void load_into_module(torch::nn::Module& module, const SafeTensors& file) {
  torch::NoGradGuard no_grad;
  for (auto& [target, value] : matched(module, file)) target.copy_(value);
}

}  // namespace skein
