// What all workers do together at marks in samples.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "plan/marks.h"
#include "skein/torch.h"

namespace skein {

// The functions of run.every() and run.save_every(), which all workers call together, under every
// strategy. For the user's thread.
class PeriodicCalls {
 public:
  explicit PeriodicCalls(Distributed::Impl& run) : run_(run) {}

  void add(std::int64_t samples, std::function<void()> body);  // see Distributed::every()
  void restart();  // begins all marks anew, where the run stands now

  bool due();                                // this worker has come to a mark
  bool running() const { return running_; }  // a function is called: all workers are together

  // Whether a flush must look for workers that have come to a mark.
  bool awaited() const { return !all_.empty() && !running_; }

  // Flushes, and calls what is due, with all workers: with those that have come to a mark, and with
  // those that make no more steps until all have come (`to_stay`). Returns to the latter when
  // nobody is left outside.
  void come_together(bool to_stay);

 private:
  struct Each {
    std::int64_t every;
    Marks marks;
    std::function<void()> body;
  };

  std::vector<Marks*> marks();
  bool call_due();

  Distributed::Impl& run_;
  std::vector<Each> all_;
  bool running_ = false;
};

}  // namespace skein
