// A way to train that is compared with others, and what it came to.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace skein::advise {

// A strategy with its settings.
struct Setup {
  std::string strategy;
  std::map<std::string, std::string> settings;  // --set strategy.KEY=VALUE
  bool one_level = false;  // collectives over all workers, though hosts have several

  bool operator==(const Setup&) const = default;
};

// What a simulated run of it came to.
struct Candidate {
  Setup setup;
  double iteration_ms = 0;  // median, of rank 0
  // Of a run that goes on: without what synchronous workers do before they have settled, and
  // without the wait of those who are done first for the slowest worker's last step.
  double samples_per_second = 0;
  double of_summed_speed = 0;  // of what the workers could compute
  double bytes_per_step = 0;   // that a worker sends for each of its batches
  double exposed_ms = 0;       // of an iteration, mean over the workers
  // Steps that the busiest worker makes by itself between two averages of the models or two
  // updates of the weights; 1 for those who meet at every step.
  double steps_between = 1;
  std::uint64_t events = 0;  // that the simulation took
  std::string error;         // why the run failed; empty: it did not
};

bool is_bf16(const Setup& setup);

// Whether it computes what one worker with the whole batch would, but for rounding.
bool is_synchronous(const Setup& setup);

// "dear", "dear, bf16", "allreduce, balanced": as people call it, without sizes and numbers.
std::string name_of(const Setup& setup);

// "fusion 4MB, balance": its settings beside the defaults, or "".
std::string settings_of(const Setup& setup);

// The options of `skein train` that ask for it: "--strategy", "dear", "--wire", "bf16"…
std::vector<std::string> options_of(const Setup& setup);

}  // namespace skein::advise
