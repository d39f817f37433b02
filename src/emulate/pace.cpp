#include "emulate/pace.h"

#include "core/spec.h"

namespace skein {

Slowdowns parse_slowdowns(const std::string& text) {
  Spec spec("--slowdowns", "slowdowns:" + text);
  spec.require("every");
  spec.require("for");
  Slowdowns slowdowns{spec.duration("every", {}), spec.duration("for", {}),
                      spec.number("factor", 3, 1, 1e6)};
  spec.finish();
  if (slowdowns.every.count() <= 0 || slowdowns.lasting.count() <= 0)
    spec.fail("expected times above 0");
  return slowdowns;
}

Pace::Pace(double speed, double jitter, const Slowdowns& slowdowns, Rng rng)
    : speed_(speed), jitter_(jitter), slowdowns_(slowdowns), rng_(rng) {
  if (slowdowns_.every.count() > 0)
    change_ = Time() + from_seconds(rng_.exponential(1 / seconds(slowdowns_.every)));
}

double Pace::next_factor(Time now) {
  while (change_ <= now) {
    slow_ = !slow_;
    const Duration mean = slow_ ? slowdowns_.lasting : slowdowns_.every;
    change_ += from_seconds(rng_.exponential(1 / seconds(mean)));
  }
  const double jitter = jitter_ > 0 ? rng_.uniform(1 - jitter_, 1 + jitter_) : 1;
  return jitter / speed_ * (slow_ ? slowdowns_.factor : 1) * fault_factor;
}

}  // namespace skein
