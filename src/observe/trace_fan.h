// One trace for those who report, several for those who look.
#pragma once

#include <vector>

#include "core/trace.h"

namespace skein {

// Passes every span on. Targets are added before anybody reports, and outlive it.
class TraceFan final : public Trace {
 public:
  void add(Trace& target) { targets_.push_back(&target); }
  bool empty() const { return targets_.empty(); }
  void span(Lane lane, std::string_view name, Time begin, Time end) override {
    for (Trace* target : targets_) target->span(lane, name, begin, end);
  }

 private:
  std::vector<Trace*> targets_;
};

}  // namespace skein
