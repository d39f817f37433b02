#include "torch/agreement.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <torch/torch.h>

#include <algorithm>
#include <array>
#include <map>
#include <span>
#include <sstream>
#include <unordered_map>

#include "core/print_ranks.h"
#include "runtime/world_impl.h"

namespace skein {
namespace {

constexpr std::size_t kMostDifferences = 4;  // that a message lists
constexpr std::size_t kLongestValue = 120;

using Ranks = std::vector<int>;

std::string type_and_shape(const torch::Tensor& tensor) {
  std::ostringstream out;
  out << c10::toString(tensor.scalar_type()) << " " << tensor.sizes();
  return out.str();
}

std::string shortened(const std::string& value) {
  return value.size() <= kLongestValue ? value : value.substr(0, kLongestValue) + "…";
}

// Facts as text, each part ended by a zero; a failure is one part alone.
std::string to_text(const Facts& facts, const std::string& failure) {
  if (!failure.empty()) return failure;
  std::string text;
  for (const Fact& fact : facts) text += fact.what + '\0' + fact.value + '\0';
  return text;
}

Facts from_text(const std::string& text) {
  Facts facts;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t middle = text.find('\0', at), end = text.find('\0', middle + 1);
    facts.push_back({text.substr(at, middle - at), text.substr(middle + 1, end - middle - 1)});
    at = end + 1;
  }
  return facts;
}

// Whether all have the same text, by digest (FNV-1a): one small message.
bool all_have(World& world, const std::string& own) {
  std::uint64_t digest = 14695981039346656037ULL;
  for (const char byte : own)
    digest = (digest ^ static_cast<unsigned char>(byte)) * 1099511628211ULL;
  const std::array<std::uint64_t, 2> mine{digest, own.size()};
  const auto bytes = std::as_bytes(std::span(mine));
  for (const auto& row : world.calls().gather("its arguments", bytes))
    if (!row.empty() && !std::ranges::equal(row, bytes)) return false;
  return true;
}

bool tells_of_failure(const std::string& text) { return text.find('\0') == std::string::npos; }

// "learning rate is 0.1 on ranks 0, 2 and 0.2 on rank 1"
std::string print_values(const std::string& what, const std::map<int, std::string>& by_rank,
                         const Ranks& everybody) {
  std::vector<std::pair<std::string, Ranks>> values;
  Ranks without;
  for (const int rank : everybody) {
    const auto own = by_rank.find(rank);
    if (own == by_rank.end()) {
      without.push_back(rank);
      continue;
    }
    const auto same = std::find_if(values.begin(), values.end(),
                                   [&](const auto& each) { return each.first == own->second; });
    if (same == values.end())
      values.push_back({own->second, {rank}});
    else
      same->second.push_back(rank);
  }
  if (values.size() + (without.empty() ? 0 : 1) < 2) return "";
  std::vector<std::string> parts;
  for (const auto& [value, ranks] : values)
    parts.push_back(fmt::format("{} on {}", shortened(value), print_ranks(ranks)));
  if (!without.empty()) parts.push_back(fmt::format("not there on {}", print_ranks(without)));
  return fmt::format("{} is {}", what, fmt::join(parts, " and "));
}

std::string describe_differences(const std::vector<std::string>& texts) {
  std::vector<std::string> order;
  std::map<std::string, std::map<int, std::string>> values;
  Ranks everybody;
  for (std::size_t r = 0; r < texts.size(); ++r) {
    if (texts[r].empty()) continue;
    everybody.push_back(static_cast<int>(r));
    for (const Fact& fact : from_text(texts[r])) {
      if (!values.contains(fact.what)) order.push_back(fact.what);
      values[fact.what][static_cast<int>(r)] = fact.value;
    }
  }
  std::vector<std::string> differences;
  for (const std::string& what : order)
    if (auto text = print_values(what, values[what], everybody); !text.empty())
      differences.push_back(std::move(text));
  const std::size_t shown = std::min(differences.size(), kMostDifferences);
  std::string text =
      fmt::format("{}", fmt::join(differences.begin(),
                                  differences.begin() + static_cast<std::ptrdiff_t>(shown), "; "));
  if (differences.size() > shown) text += fmt::format("; and {} more", differences.size() - shown);
  return text;
}

}  // namespace

Facts facts_of(const torch::nn::Module& module) {
  Facts facts;
  std::unordered_map<const void*, std::string> first_names;
  std::vector<std::string> order;
  for (const auto& each : module.named_parameters()) {
    const torch::Tensor& tensor = each.value();
    const auto [known, is_new] = first_names.try_emplace(tensor.unsafeGetTensorImpl(), each.key());
    facts.push_back({fmt::format("parameter '{}'", each.key()),
                     is_new ? fmt::format("{}, {}", type_and_shape(tensor),
                                          tensor.requires_grad() ? "trained" : "frozen")
                            : fmt::format("the same as '{}'", known->second)});
    order.push_back(each.key());
  }
  for (const auto& each : module.named_buffers()) {
    if (each.value().defined())
      facts.push_back({fmt::format("buffer '{}'", each.key()), type_and_shape(each.value())});
    order.push_back(each.key());
  }
  facts.push_back(
      {"the order of parameters and buffers", fmt::format("{}", fmt::join(order, ", "))});
  return facts;
}

void agree(World& world, const Facts& facts, const std::string& failure) {
  if (world.size() == 1) return;
  const std::string own = to_text(facts, failure);
  if (all_have(world, own)) return;
  const std::vector<std::string> texts = world.calls().gather_text("what differs", own);
  if (!failure.empty()) return;
  std::map<int, std::string> failures;
  Ranks failed;
  for (std::size_t r = 0; r < texts.size(); ++r) {
    if (texts[r].empty() || !tells_of_failure(texts[r])) continue;
    failures[static_cast<int>(r)] = texts[r];
    failed.push_back(static_cast<int>(r));
  }
  if (!failed.empty())
    throw ConfigError(fmt::format("distribute() failed on {}: {}", print_ranks(failed),
                                  failures.begin()->second));
  throw ConfigError(fmt::format("the workers did not call distribute() with the same arguments: {}",
                                describe_differences(texts)));
}

}  // namespace skein
