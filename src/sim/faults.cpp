#include "sim/faults.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cmath>

#include "core/parse_number.h"
#include "core/spec.h"
#include "core/units.h"

namespace skein::sim {
namespace {

using Kind = Fault::Kind;

struct KindName {
  Kind kind;
  const char* name;
};
constexpr KindName kKinds[] = {
    {Kind::crash, "crash"}, {Kind::vanish, "vanish"},       {Kind::restart, "restart"},
    {Kind::pause, "pause"}, {Kind::partition, "partition"}, {Kind::delay, "delay"},
    {Kind::slow, "slow"}};

Kind kind_of(const std::string& name, const Spec& spec) {
  std::vector<std::string> names;
  for (const KindName& each : kKinds) {
    if (name == each.name) return each.kind;
    names.emplace_back(each.name);
  }
  spec.fail(fmt::format("'{}': expected {}, or random", name, fmt::join(names, ", ")));
}

int parse_rank(std::string_view text, int workers, const Spec& spec) {
  int rank = -1;
  if (!parse_number(text, rank) || rank < 0 || rank >= workers)
    spec.fail(fmt::format("rank '{}': expected 0 to {}", text, workers - 1));
  return rank;
}

std::set<int> parse_ranks(const std::string& text, int workers, const Spec& spec) {
  std::set<int> ranks;
  for (const std::string& piece : split_text(text, '+')) {
    const std::size_t dash = std::min(piece.find('-'), piece.size());
    const int first = parse_rank(std::string_view(piece).substr(0, dash), workers, spec);
    const int last = dash == piece.size()
                         ? first
                         : parse_rank(std::string_view(piece).substr(dash + 1), workers, spec);
    for (int rank = first; rank <= last; ++rank) ranks.insert(rank);
  }
  if (ranks.empty()) spec.fail("expected at least one rank");
  return ranks;
}

bool one_rank_only(Kind kind) {
  return kind != Kind::partition && kind != Kind::delay && kind != Kind::slow;
}

Fault parse_fault(Spec& spec, int workers) {
  Fault fault{.kind = kind_of(spec.name(), spec), .ranks = {}};
  const char* key = spec.has("rank") ? "rank" : "ranks";
  spec.require(one_rank_only(fault.kind) ? "rank" : key);
  spec.require("at");
  fault.ranks = parse_ranks(spec.text(key, ""), workers, spec);
  fault.at = spec.duration("at", {});
  if (fault.kind == Kind::restart)
    fault.lasting = spec.duration("after", std::chrono::seconds(1));
  else if (fault.kind != Kind::crash && fault.kind != Kind::vanish)
    fault.lasting = spec.duration("for", {});
  if (fault.kind == Kind::delay) {
    spec.require("extra");
    fault.extra = spec.duration("extra", {});
  }
  if (fault.kind == Kind::slow) fault.factor = spec.number("factor", 10, 1e-3, 1e9);
  spec.finish();
  if (one_rank_only(fault.kind) && fault.ranks.size() != 1) spec.fail("expected one rank");
  return fault;
}

std::vector<Kind> parse_kinds(const std::string& text, const Spec& spec) {
  if (text.empty()) return all_fault_kinds();
  std::vector<Kind> kinds;
  for (const std::string& name : split_text(text, '+')) kinds.push_back(kind_of(name, spec));
  return kinds;
}

std::string trimmed(const std::string& text) {
  const std::size_t begin = text.find_first_not_of(" \t\n");
  if (begin == std::string::npos) return "";
  return text.substr(begin, text.find_last_not_of(" \t\n") - begin + 1);
}

// In whole microseconds, so that the text is short.
Duration rounded(double value) {
  return std::chrono::microseconds(static_cast<std::int64_t>(std::floor(value * 1e6)));
}

std::string print_exact(Duration time) {
  return time.count() % 1000 == 0 ? fmt::format("{}us", time.count() / 1000)
                                  : fmt::format("{}ns", time.count());
}

}  // namespace

const char* name_of(Kind kind) { return kKinds[static_cast<std::size_t>(kind)].name; }

const std::vector<Kind>& all_fault_kinds() {
  static const std::vector<Kind> kinds = [] {
    std::vector<Kind> all;
    for (const KindName& each : kKinds) all.push_back(each.kind);
    return all;
  }();
  return kinds;
}

Fault draw_fault(Rng& rng, int workers, Duration within, const std::vector<Kind>& kinds) {
  Fault fault{.kind = kinds[rng.below(kinds.size())], .ranks = {}};
  const auto some_rank = [&] {
    return static_cast<int>(rng.below(static_cast<unsigned>(workers)));
  };
  const std::uint64_t most = one_rank_only(fault.kind) ? 1 : static_cast<unsigned>(workers + 1) / 2;
  for (std::uint64_t count = 1 + rng.below(most); count > 0; --count)
    fault.ranks.insert(some_rank());
  fault.at = rounded(seconds(within) * rng.uniform());
  fault.lasting = rounded(seconds(within) * rng.uniform(0.001, 0.5));
  if (fault.kind == Kind::delay) fault.extra = rounded(seconds(within) * rng.uniform(0, 0.05));
  return fault;
}

std::vector<Fault> parse_faults(const std::string& text, int workers, std::uint64_t seed) {
  std::vector<Fault> faults;
  Rng rng = Rng(seed).split(0x6661756c74);
  for (const std::string& piece : split_text(text, ';')) {
    if (trimmed(piece).empty()) continue;
    Spec spec("--faults", trimmed(piece));
    if (spec.name() != "random") {
      faults.push_back(parse_fault(spec, workers));
      continue;
    }
    spec.require("within");
    const auto count = spec.integer("count", 1, 1, 1000);
    const Duration within = spec.duration("within", {});
    const auto kinds = parse_kinds(spec.text("kinds", ""), spec);
    spec.finish();
    if (within.count() <= 0) spec.fail("within: expected a time above 0");
    for (std::int64_t i = 0; i < count; ++i)
      faults.push_back(draw_fault(rng, workers, within, kinds));
  }
  return faults;
}

std::string describe(const Fault& fault) {
  std::string text =
      fmt::format("{}:{}={},at={}", name_of(fault.kind), fault.ranks.size() == 1 ? "rank" : "ranks",
                  fmt::join(fault.ranks, "+"), print_exact(fault.at));
  if (fault.kind == Kind::restart) text += ",after=" + print_exact(fault.lasting);
  if (fault.kind >= Kind::pause && fault.lasting.count() > 0)
    text += ",for=" + print_exact(fault.lasting);
  if (fault.kind == Kind::delay) text += ",extra=" + print_exact(fault.extra);
  if (fault.kind == Kind::slow) text += fmt::format(",factor={}", fault.factor);
  return text;
}

std::string describe(const std::vector<Fault>& faults) {
  std::vector<std::string> texts;
  texts.reserve(faults.size());
  for (const Fault& fault : faults) texts.push_back(describe(fault));
  return fmt::format("{}", fmt::join(texts, "; "));
}

}  // namespace skein::sim
