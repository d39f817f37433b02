#include "train/simulate/layer_times.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "core/check.h"
#include "core/statistics.h"
#include "torch/gradient_hooks.h"
#include "torch/read_hook.h"

namespace skein {
namespace {

// Below this part of backward, what comes after the last gradient is not worth a layer of its own.
constexpr double kNegligibleRest = 0.05;

double nanoseconds(Duration duration) { return static_cast<double>(duration.count()); }

// A stretch of time and, in order, when each slot came up in it for the first time.
struct Stretch {
  struct Mark {
    int slot;
    Time at;
  };

  explicit Stretch(std::size_t slots) : seen(slots) {}

  void add(int slot, Time at) {
    if (seen[static_cast<std::size_t>(slot)]) return;
    seen[static_cast<std::size_t>(slot)] = true;
    marks.push_back({slot, at});
  }
  double length() const { return nanoseconds(end - begin); }

  Time begin{}, end{};
  std::vector<Mark> marks;
  std::vector<bool> seen;
};

// Nanoseconds of one kind of part, iteration by iteration.
using Sample = std::vector<double>;

double median(const Sample& sample) { return quantile(sample, 0.5); }

class LayerTimer {
 public:
  LayerTimer(Binding& binding, const Workload& workload, const Clock& clock)
      : binding_(binding),
        workload_(workload),
        clock_(clock),
        forward_(slots()),
        backward_(slots()),
        reads_(binding, [this](int slot) { forward_.add(slot, clock_.now()); }),
        gradients_(binding,
                   [this](int slot) {
                     if (marking_) backward_.add(slot, clock_.now());
                   }),
        forward_parts_(slots()),
        backward_parts_(slots()) {}

  void run_pair(bool counts) {
    for (const bool marking : {true, false}) {
      marking_ = marking;
      iterate();
      if (!counts) continue;
      if (marking) {
        count_reads();
        count_gradients();
      } else {
        forward_totals_.push_back(forward_.length());
        backward_totals_.push_back(backward_.length());
      }
      updates_.push_back(nanoseconds(update_));
    }
  }

  LayerTimes result() const;

 private:
  std::size_t slots() const { return static_cast<std::size_t>(binding_.slots()); }
  void iterate();
  void count_reads();
  void count_gradients();

  Binding& binding_;
  const Workload& workload_;
  const Clock& clock_;
  bool marking_ = false;        // the uses of parameters and their gradients, in this iteration
  Stretch forward_, backward_;  // of the last iteration, and
  Duration update_{};
  ReadHook reads_;
  GradientHooks gradients_;
  std::vector<Sample> forward_parts_, backward_parts_;  // per slot
  Sample rests_, forward_totals_, backward_totals_, updates_;
  bool in_order_ = true;
  int last_gradient_ = 0;  // the slot whose gradient came last
};

void LayerTimer::iterate() {
  forward_ = backward_ = Stretch(slots());
  workload_.load();
  if (marking_) reads_.activate();
  forward_.begin = clock_.now();
  torch::Tensor loss = workload_.forward();
  forward_.end = clock_.now();
  reads_.deactivate();

  backward_.begin = clock_.now();
  loss.backward();
  backward_.end = clock_.now();

  workload_.wait();
  const Time begin = clock_.now();
  workload_.update();
  update_ = clock_.now() - begin;
}

// A slot has the time from its mark to the next; the first one also what comes before it.
void LayerTimer::count_reads() {
  for (Sample& sample : forward_parts_) sample.push_back(0);
  const auto& marks = forward_.marks;
  for (std::size_t i = 0; i < marks.size(); ++i) {
    const Time begin = i == 0 ? forward_.begin : marks[i].at;
    const Time end = i + 1 < marks.size() ? marks[i + 1].at : forward_.end;
    forward_parts_[static_cast<std::size_t>(marks[i].slot)].back() = nanoseconds(end - begin);
  }
  in_order_ = std::is_sorted(marks.begin(), marks.end(),
                             [](const auto& a, const auto& b) { return a.slot < b.slot; });
}

// A slot has the time from the mark before its own.
void LayerTimer::count_gradients() {
  for (Sample& sample : backward_parts_) sample.push_back(0);
  Time begin = backward_.begin;
  for (const Stretch::Mark& mark : backward_.marks) {
    backward_parts_[static_cast<std::size_t>(mark.slot)].back() = nanoseconds(mark.at - begin);
    begin = mark.at;
    last_gradient_ = mark.slot;
  }
  rests_.push_back(nanoseconds(backward_.end - begin));
}

// `total` in the proportions of `parts`, to the last nanosecond.
std::vector<Duration> divided(double total, const std::vector<double>& parts) {
  double whole = 0;
  for (const double part : parts) whole += part;
  std::vector<Duration> out;
  double sum = 0;
  Duration given{};
  for (const double part : parts) {
    sum += part;
    const Duration until(std::llround(whole > 0 ? total * (sum / whole) : total));
    out.push_back(until - given);
    given = until;
  }
  return out;
}

std::vector<double> medians(const std::vector<Sample>& samples) {
  std::vector<double> out;
  for (const Sample& sample : samples) out.push_back(median(sample));
  return out;
}

LayerTimes LayerTimer::result() const {
  const auto forward = divided(median(forward_totals_), medians(forward_parts_));
  auto backward_parts = medians(backward_parts_);
  const bool has_rest = median(rests_) > kNegligibleRest * median(backward_totals_);
  if (has_rest)
    backward_parts.push_back(median(rests_));
  else
    backward_parts[static_cast<std::size_t>(last_gradient_)] += median(rests_);
  const auto backward = divided(median(backward_totals_), backward_parts);

  LayerTimes times;
  if (has_rest) times.layers.push_back({"(before the first parameter)", {}, {}, backward.back()});
  for (std::size_t slot = 0; slot < slots(); ++slot) {
    const Slot& place = binding_.arena().slots()[slot];
    times.layers.push_back({place.name,
                            {static_cast<std::int64_t>(place.range.count)},
                            forward[slot],
                            backward[slot]});
  }
  times.update = Duration(std::llround(median(updates_)));
  times.in_order = in_order_;
  return times;
}

}  // namespace

LayerTimes measure_layers(Binding& binding, const Workload& workload, int warmup, int iterations,
                          const Clock& clock) {
  SKEIN_CHECK(warmup >= 0 && iterations >= 1, "{} + {} iterations", warmup, iterations);
  LayerTimer timer(binding, workload, clock);
  for (int i = -warmup; i < iterations; ++i) timer.run_pair(i >= 0);
  return timer.result();
}

}  // namespace skein
