#include "compare/claims.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <functional>

#include "core/field_names.h"

namespace skein::compare {
namespace {

// Less than this is no reason to give up what is simple.
constexpr double kWorthwhile = 1.05;

const Spread* known(const ClaimRow& row, const std::string& key) {
  const auto found = row.figures.find(key);
  return found != row.figures.end() && found->second.median ? &found->second : nullptr;
}

double median(const ClaimRow& row, const std::string& key) { return *known(row, key)->median; }

std::string shown(const ClaimRow& row, const std::string& key) {
  return print_spread(figure(key), *known(row, key));
}

// Those that have the figure, the best first; equals in their order.
std::vector<const ClaimRow*> ranked(const std::vector<ClaimRow>& rows, const std::string& key) {
  std::vector<const ClaimRow*> out;
  for (const ClaimRow& row : rows)
    if (known(row, key) != nullptr) out.push_back(&row);
  const bool more = figure(key).more_is_better;
  std::stable_sort(out.begin(), out.end(), [&](const ClaimRow* a, const ClaimRow* b) {
    return more ? median(*a, key) > median(*b, key) : median(*a, key) < median(*b, key);
  });
  return out;
}

std::string verdict(const Spread& a, const Spread& b) {
  switch (apart(a, b)) {
    case Apart::beyond:
      return "; the rounds' ranges do not overlap";
    case Apart::within:
      return "; the rounds' ranges overlap, so the difference is within the spread";
    case Apart::unknown:
      break;
  }
  return "";  // one sentence says so for all
}

std::string percent(double part) { return fmt::format("{:.4g} %", 100 * part); }

// Who was how many times as fast; a factor below 1 is slower.
std::string times(double factor) { return fmt::format("{:.2f} ×", factor); }

class Writer {
 public:
  Writer(const std::vector<ClaimRow>& rows, const ClaimContext& context)
      : rows_(rows), context_(context) {}

  Claims write() {
    if (rows_.empty()) return out_;
    target();
    expectations();
    equal_samples();
    speed();
    waiting();
    bytes();
    rounds();
    recommend();
    return out_;
  }

 private:
  void rounds() {
    const bool once = std::all_of(rows_.begin(), rows_.end(), [](const ClaimRow& row) {
      return std::all_of(row.figures.begin(), row.figures.end(),
                         [](const auto& figure) { return figure.second.of < 2; });
    });
    if (once)
      say("This is one round: nobody knows how far rounds differ by themselves. --rounds 3 shows "
          "it.");
  }

  const ClaimRow& first() const { return rows_.front(); }
  void say(std::string sentence) { out_.sentences.push_back(std::move(sentence)); }

  void target() {
    if (context_.target <= 0) return;
    const auto order = ranked(rows_, kTime);
    const std::string goal = percent(context_.target);
    if (order.empty()) {
      say(fmt::format("Nobody reached {}.", goal));
      return;
    }
    const ClaimRow& best = *order.front();
    std::string text =
        fmt::format("{} reached {} first, after {}", best.name, goal, shown(best, kTime));
    if (order.size() > 1) {
      const ClaimRow& next = *order[1];
      text += fmt::format(", {} as fast as {} with {}{}",
                          times(median(next, kTime) / median(best, kTime)), next.name,
                          shown(next, kTime), verdict(*known(best, kTime), *known(next, kTime)));
    }
    say(text + ".");
    if (&best != &first() && known(first(), kTime) != nullptr && order.size() > 2 &&
        order[1] != &first())
      say(fmt::format("That is {} as fast as {} with {}{}.",
                      times(median(first(), kTime) / median(best, kTime)), first().name,
                      shown(first(), kTime), verdict(*known(best, kTime), *known(first(), kTime))));
    for (const ClaimRow& row : rows_) {
      const auto found = row.figures.find(kTime);
      if (found == row.figures.end() || found->second.count == found->second.of) continue;
      const std::string how = found->second.count == 0
                                  ? fmt::format("did not reach {}", goal)
                                  : fmt::format("reached {} in {} of {} rounds", goal,
                                                found->second.count, found->second.of);
      say(fmt::format("{} {}{}.", row.name, how,
                      known(row, field::kAccuracy) != nullptr
                          ? fmt::format("; it ended at {}", shown(row, field::kAccuracy))
                          : ""));
    }
  }

  void expectations() {
    if (context_.expect.empty()) return;
    const std::string key = measure();
    if (key.empty() || known(first(), key) == nullptr) {
      expected_of_nothing(key);
      return;
    }
    std::vector<std::string> parts;
    for (const ClaimRow& row : rows_) {
      if (!expected(row)) continue;
      if (known(row, key) == nullptr) {
        parts.push_back(fmt::format("{} was not (the target was not reached)", row.name));
        continue;
      }
      const double factor = faster(row, first(), key);
      const Apart far = apart(*known(row, key), *known(first(), key));
      parts.push_back(fmt::format("{} {} ({}{})", row.name, factor > 1 ? "was" : "was NOT",
                                  times(factor),
                                  far == Apart::within ? ", within the spread" : ""));
    }
    if (!parts.empty())
      say(fmt::format("Expected to be faster than {} here: {}.", first().name,
                      fmt::join(parts, ", ")));
  }

  bool expected(const ClaimRow& row) const {
    return std::find(context_.expect.begin(), context_.expect.end(), row.name) !=
           context_.expect.end();
  }

  // The first entry has no figure to beat: who has one is named, and no factor.
  void expected_of_nothing(const std::string& key) {
    const std::string head = fmt::format("Expected to be faster than {} here: ", first().name);
    if (context_.target <= 0) {
      say(head + fmt::format("nobody knows, since {} has no samples/s.", first().name));
      return;
    }
    if (key.empty()) {
      say(head + fmt::format("nobody knows, since nobody reached {}.", percent(context_.target)));
      return;
    }
    std::string text =
        head + fmt::format("{} did not reach {}", first().name, percent(context_.target));
    for (const ClaimRow& row : rows_)
      if (expected(row))
        text += known(row, key) == nullptr
                    ? fmt::format("; {} did not, either", row.name)
                    : fmt::format("; {} did, after {}", row.name, shown(row, key));
    say(text + ".");
  }

  void equal_samples() {
    std::vector<const ClaimRow*> order;
    for (const ClaimRow& row : rows_)
      if (row.at_equal_samples.median) order.push_back(&row);
    if (order.size() < 2 || context_.equal_samples <= 0) return;
    std::stable_sort(order.begin(), order.end(), [](const ClaimRow* a, const ClaimRow* b) {
      return *a->at_equal_samples.median > *b->at_equal_samples.median;
    });
    const ClaimRow &best = *order.front(), &worst = *order.back();
    say(fmt::format(
        "After {:.0f} samples, as many as all have seen, {} had the highest accuracy ({}) and {} "
        "the lowest ({}){}.",
        context_.equal_samples, best.name,
        print_spread(figure(field::kAccuracy), best.at_equal_samples), worst.name,
        print_spread(figure(field::kAccuracy), worst.at_equal_samples),
        verdict(best.at_equal_samples, worst.at_equal_samples)));
  }

  void speed() {
    const auto order = ranked(rows_, kSpeed);
    if (order.size() < 2) return;
    const ClaimRow& best = *order.front();
    const auto share = [](const ClaimRow& row) {
      return known(row, "of_summed_speed") == nullptr
                 ? std::string()
                 : fmt::format(", {:.0f} % of the summed speed",
                               100 * median(row, "of_summed_speed"));
    };
    const ClaimRow& other = order.front() == &first() ? *order[1] : first();
    if (known(other, kSpeed) == nullptr) return;
    say(fmt::format("{} computed most: {} samples/s{}. {} had {}{}{}.", best.name,
                    shown(best, kSpeed), share(best), other.name, shown(other, kSpeed),
                    share(other), verdict(*known(best, kSpeed), *known(other, kSpeed))));
  }

  void waiting() {
    constexpr const char *kWaiting = "waiting_ms_per_1000_samples", *kAll = "ms_per_1000_samples";
    const auto order = ranked(rows_, kWaiting);
    if (order.size() < 2) return;
    const ClaimRow &least = *order.front(), &most = *order.back();
    say(fmt::format(
        "{} waited least, {} of the {} that 1,000 samples took; {} waited longest, {} "
        "of {}. {}",
        least.name, shown(least, kWaiting), print_value(figure(kAll), median(least, kAll)),
        most.name, shown(most, kWaiting), print_value(figure(kAll), median(most, kAll)),
        kWhyPerSamples));
  }

  void bytes() {
    const auto order = ranked(rows_, field::kBytesSent);
    if (order.size() < 2) return;
    say(fmt::format("{} sent the least, {}; {} the most, {}.", order.front()->name,
                    shown(*order.front(), field::kBytesSent), order.back()->name,
                    shown(*order.back(), field::kBytesSent)));
  }

  // By what one is better than another: the time to the target, else the speed.
  std::string measure() const {
    if (context_.target > 0) return ranked(rows_, kTime).empty() ? "" : kTime;
    return ranked(rows_, kSpeed).empty() ? "" : kSpeed;
  }

  static double faster(const ClaimRow& a, const ClaimRow& b, const std::string& key) {
    return key == kTime ? median(b, key) / median(a, key) : median(a, key) / median(b, key);
  }

  // What is no worse by much, or not beyond the spread, and simpler: plain allreduce.
  const ClaimRow* as_good_and_simpler(const ClaimRow& best, const std::string& key) const {
    for (const ClaimRow& row : rows_) {
      if (!row.plain || row.strategy != "allreduce" || &row == &best || known(row, key) == nullptr)
        continue;
      const bool close = faster(best, row, key) < kWorthwhile;
      if (close || apart(*known(best, key), *known(row, key)) == Apart::within) return &row;
    }
    return nullptr;
  }

  void recommend() {
    const std::string key = measure();
    if (key.empty()) return;
    const auto order = ranked(rows_, key);
    const ClaimRow& best = *order.front();
    const std::string unit = key == kTime ? "" : " samples/s";
    const std::string what = key == kTime
                                 ? fmt::format("time to {}", percent(context_.target))
                                 : std::string("throughput alone, which says nothing of accuracy");
    if (const ClaimRow* simple = as_good_and_simpler(best, key)) {
      out_.recommendation = fmt::format(
          "By {}, {} is as good as any here, with {}{} where {}, the best, has {}{}: use it, it is "
          "the simplest.",
          what, simple->name, shown(*simple, key), unit, best.name, shown(best, key), unit);
      return;
    }
    out_.recommendation =
        fmt::format("By {}, use {}: {}{}", what, best.name, shown(best, key), unit);
    const ClaimRow& other = &best == &first() && order.size() > 1 ? *order[1] : first();
    if (&other != &best && known(other, key) != nullptr)
      out_.recommendation +=
          fmt::format(", {} as fast as {} with {}{}", times(faster(best, other, key)), other.name,
                      shown(other, key), unit);
    else if (&other != &best)
      out_.recommendation += fmt::format("; {} did not get there", other.name);
    out_.recommendation += ".";
  }

  static constexpr const char* kTime = field::kSecondsToTarget;
  static constexpr const char* kSpeed = field::kSamplesPerSecond;

  const std::vector<ClaimRow>& rows_;
  const ClaimContext& context_;
  Claims out_;
};

}  // namespace

Claims claims_of(const std::vector<ClaimRow>& rows, const ClaimContext& context) {
  return Writer(rows, context).write();
}

}  // namespace skein::compare
