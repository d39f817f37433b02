// What goes wrong on a virtual cluster, and when.
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "core/clock.h"
#include "core/rng.h"

namespace skein::sim {

struct Fault {
  enum class Kind : std::uint8_t {
    crash,      // the process dies, and its peers' connections with it
    vanish,     // the host goes silent: only deadlines tell
    restart,    // crashes, and comes back `lasting` later with nothing
    pause,      // stands still for `lasting`, like SIGSTOP
    partition,  // `ranks` and the rest cannot reach each other for `lasting`
    delay,      // messages to and from `ranks` take `extra` longer for `lasting`
    slow        // `ranks` compute `factor` times slower for `lasting`
  };

  Kind kind = Kind::crash;
  std::set<int> ranks;
  Duration at{};
  Duration lasting{};  // 0: for ever
  Duration extra{};
  double factor = 10;
};

// Faults separated by ';', each KIND:KEY=VALUE,…:
//   crash:rank=3,at=2s            vanish:rank=3,at=2s          restart:rank=3,at=2s,after=1s
//   pause:rank=1,at=1s,for=500ms  slow:rank=1,at=1s,for=5s,factor=10
//   partition:ranks=0-3,at=1s,for=2s      delay:ranks=2,at=1s,for=1s,extra=200ms
//   random:count=3,within=10s[,kinds=pause+slow]     drawn from the seed
// `rank` and `ranks` are ranges joined by '+': 0-3+7. Throws ConfigError.
std::vector<Fault> parse_faults(const std::string& text, int workers, std::uint64_t seed);

// A random fault somewhere in `within`, of any kind or of `kinds`.
Fault draw_fault(Rng& rng, int workers, Duration within, const std::vector<Fault::Kind>& kinds);

// In the words of parse_faults().
std::string describe(const Fault& fault);
std::string describe(const std::vector<Fault>& faults);

const char* name_of(Fault::Kind kind);
const std::vector<Fault::Kind>& all_fault_kinds();

}  // namespace skein::sim
