#include "advise/sentences.h"

#include <fmt/format.h>

#include <algorithm>

#include "advise/cluster.h"
#include "strategy/registry.h"

namespace skein::advise {
namespace {

constexpr double kNearlyAll = 0.9;  // of the time: little is left to gain
constexpr double kLongAlone = 100;  // steps without the others

double percent(double part) { return 100 * part; }

// "dear" in words: `dear` with bfloat16 on the wire, shares by speed.
std::string words(const Setup& setup) {
  std::string text = fmt::format("`{}`", setup.strategy);
  if (setup.settings.contains("balance")) text += " with shares by speed";
  if (is_bf16(setup))
    text += setup.settings.contains("balance") ? " and bfloat16 on the wire"
                                               : " with bfloat16 on the wire";
  return text;
}

// The same of what a change is told of; synchronous ones have shares by speed among the unequal.
std::string answer_words(const std::string& answer, bool unequal) {
  const std::size_t comma = answer.find(',');
  Setup setup{answer.substr(0, comma), {}};
  if (comma != std::string::npos) setup.settings["wire"] = "bf16";
  if (unequal && is_synchronous(setup)) setup.settings["balance"] = "true";
  return answer == "allreduce" && !unequal ? "plain `allreduce`" : words(setup);
}

// What the workers of a synchronous strategy wait for.
std::string what_it_waits_for(const Advice& advice, const Candidate& synchronous) {
  double slowest = 1, sum = 0;
  for (int rank = 0; rank < advice.cluster.workers; ++rank) {
    slowest = std::min(slowest, advice.cluster.speed(rank));
    sum += advice.cluster.speed(rank);
  }
  const double limit =
      synchronous.setup.settings.contains("balance") ? 1 : slowest * advice.cluster.workers / sum;
  const bool network = synchronous.of_summed_speed < kNearlyAll * limit;
  const bool slow_ones = limit < kNearlyAll;
  return network && slow_ones ? "the network and the slowest worker"
         : slow_ones          ? "the slowest worker"
         : network            ? "the network"
                              : "the others";
}

std::string allreduce_reason(const Advice& advice) {
  const Candidate& chosen = advice.recommended();
  const Candidate& fastest = advice.candidates[advice.choice.fastest];
  const double gain = fastest.samples_per_second / chosen.samples_per_second - 1;
  std::string text = fmt::format(
      "{} is best here: it uses {:.0f} % of what the workers could compute, and ",
      chosen.setup.settings.contains("balance") ? words(chosen.setup) : "Plain `allreduce`",
      percent(chosen.of_summed_speed));
  if (&fastest == &chosen) return text + "no other strategy is faster.";
  return text + fmt::format("the fastest other one, {}, would gain only {:.1f} %.",
                            words(fastest.setup), percent(gain));
}

}  // namespace

std::string rate_text(double bytes_per_second) {
  const double bits = 8 * bytes_per_second;
  if (bits >= 9.5e9) return fmt::format("{:.0f} Gb/s", bits / 1e9);
  if (bits >= 1e9) return fmt::format("{:.1f} Gb/s", bits / 1e9);
  if (bits >= 9.5e6) return fmt::format("{:.0f} Mb/s", bits / 1e6);
  return fmt::format("{:.1f} Mb/s", bits / 1e6);
}

std::string reason(const Advice& advice) {
  const Candidate& chosen = advice.recommended();
  const Candidate& plain = advice.plain();
  if (chosen.setup.strategy == "allreduce" && !is_bf16(chosen.setup))
    return allreduce_reason(advice);
  const double gain = chosen.samples_per_second / std::max(1e-9, plain.samples_per_second);
  if (is_synchronous(chosen.setup))
    return fmt::format(
        "{} is synchronous as `allreduce` is, {} and computes {:.2f} times its samples per second.",
        words(chosen.setup),
        is_bf16(chosen.setup) ? "sends half the bytes" : traits_of(chosen.setup.strategy).does,
        gain);
  const Candidate& synchronous = advice.candidates[advice.choice.synchronous];
  return fmt::format(
      "{} {}, and so uses {:.0f} % of what the workers could compute; {}, the best that is exactly "
      "synchronous, would use {:.0f} % and wait for {} the rest of the time.",
      words(chosen.setup), traits_of(chosen.setup.strategy).does, percent(chosen.of_summed_speed),
      words(synchronous.setup), percent(synchronous.of_summed_speed),
      what_it_waits_for(advice, synchronous));
}

std::string caution(const Advice& advice) {
  const Candidate& chosen = advice.recommended();
  if (is_synchronous(chosen.setup))
    return is_bf16(chosen.setup)
               ? "Throughput is not accuracy: bfloat16 rounds what is sent, once for each value."
               : "Throughput is not accuracy, but this loses none: it computes what one worker "
                 "with "
                 "the whole batch would.";
  std::string text = fmt::format(
      "Throughput is not accuracy: `{}` needs more samples than `allreduce` for the same accuracy, "
      "and perhaps another learning rate; compare both on your job before a long run.",
      chosen.setup.strategy);
  if (chosen.steps_between >= kLongAlone)
    text += fmt::format(
        " Its busiest worker makes {:.0f} steps between two averages, which is many: a larger "
        "batch, or a faster network, would make that fewer.",
        chosen.steps_between);
  else if (chosen.steps_between > 1.5)
    text +=
        fmt::format(" Its busiest worker makes {:.0f} steps between two {}.", chosen.steps_between,
                    traits_of(chosen.setup.strategy).equal_replicas ? "updates" : "averages");
  return text;
}

std::vector<std::string> change_sentences(const Advice& advice) {
  if (advice.chosen_again.empty()) return {};
  if (advice.chosen_again != answer_of(advice.recommended().setup))
    return {fmt::format(
        "What would change the answer is not known: {} is so close that the simulations which look "
        "for it choose that on this very cluster.",
        answer_words(advice.chosen_again, ratio_of(advice.cluster) > 1))};
  std::vector<std::string> out;
  const auto add = [&](const std::vector<Change>& changes, const std::string& nothing, bool unequal,
                       const auto& where) {
    for (const Change& change : changes)
      out.push_back(fmt::format("{} {} would be {}.", where(change.at),
                                answer_words(change.after, unequal),
                                change.after == "allreduce" ? "as good" : "the better choice"));
    if (changes.empty() && !nothing.empty()) out.push_back(nothing);
  };
  const double network = advice.cluster.network.bytes_per_second, ratio = ratio_of(advice.cluster);
  const auto limit = [](bool looked, const char* way, double at) {
    return looked ? fmt::format("No {} {}, would change the answer.", way, rate_text(at))
                  : std::string();
  };
  add(advice.faster, limit(network < kFastestNetwork, "faster network, up to", kFastestNetwork),
      ratio > 1, [](double at) { return "Above " + rate_text(at); });
  add(advice.slower, limit(network > kSlowestNetwork, "slower network, down to", kSlowestNetwork),
      ratio > 1, [](double at) { return "Below " + rate_text(at); });
  add(advice.less_equal, ratio < kMostUnequal ? "More unequal workers would not change it." : "",
      true, [](double at) {
        return fmt::format(
            "If the fastest worker were {:.1f} times as fast as the slowest, or more,", at);
      });
  add(advice.more_equal, ratio > 1 ? "Equally fast workers would not change it." : "", false,
      [](double at) {
        return at < 1.05 ? std::string("If all workers were equally fast,")
                         : fmt::format(
                               "If the fastest worker were at most {:.1f} times as fast as the "
                               "slowest,",
                               at);
      });
  return out;
}

}  // namespace skein::advise
