// What the workers of a run, or of a group of them, do together.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "skein/error.h"

namespace skein {

// All workers make the same calls in the same order; each returns when all have come to it. They
// compare what they call first: where they differ, every worker throws a ConfigError that says who
// called what ("rank 0 called world.gather() of 2 values, rank 1 called world.sum() of 3 values"),
// and all may go on. When a worker dies, or does not come within JoinOptions::patience, the others
// throw an IoError that names it, the call, and what it is doing instead; after that no call
// succeeds. Results have the same bits on
// all workers. With one worker everything returns at once. Not thread-safe.
//
// Where losses are tolerated (strategies `gossip` and `acid`) a World's calls are of the workers
// that live: a lost one counts for nothing, and what is gathered of it is empty. present() says
// who took part.
//
// The last line of each comment says who makes the call, when, and at what pace, as in torch.h.
class Workers {
 public:
  // This worker's number among these: 0 to size() - 1.
  // Called by: each worker for itself, at any time, at its own pace.
  int rank() const;

  // How many workers there are, those that were lost included.
  // Called by: each worker for itself, at any time, at its own pace.
  int size() const;

  // By rank, whether that worker took part in the last of the calls below: what was gathered of one
  // that did not is empty. True for all where losses are not tolerated.
  // Called by: each worker for itself, at any time, at its own pace.
  std::vector<bool> present() const;

  // Returns when every worker has called it. `name` appears in errors: "rank 2 has not come to
  // world.barrier("after loading")".
  // Called by: all workers, at any time, after the same step.
  void barrier(const std::string& name = {});

  // Every worker's `values`, added up one by one. All pass the same number. For figures such as
  // losses and counts: they are added as doubles, in the order of ranks, so that whole numbers are
  // exact as long as the sum is below 2^53. A tensor is summed by all_reduce()
  // (skein/torch_tensors.h).
  // Called by: all workers, at any time, after the same step.
  std::vector<double> sum(const std::vector<double>& values);

  // The same for whole numbers of 64 bits: exact; a sum that is too large wraps.
  // Called by: all workers, at any time, after the same step.
  std::vector<std::int64_t> sum_integers(const std::vector<std::int64_t>& values);

  // The largest of the workers' `values`, one by one. All pass the same number. NaN where any
  // worker's is NaN; of equal zeros that of the lowest rank.
  // Called by: all workers, at any time, after the same step.
  std::vector<double> max(const std::vector<double>& values);

  // The smallest, by the same rules.
  // Called by: all workers, at any time, after the same step.
  std::vector<double> min(const std::vector<double>& values);

  // The largest of whole numbers of 64 bits.
  // Called by: all workers, at any time, after the same step.
  std::vector<std::int64_t> max_integers(const std::vector<std::int64_t>& values);

  // The smallest of them.
  // Called by: all workers, at any time, after the same step.
  std::vector<std::int64_t> min_integers(const std::vector<std::int64_t>& values);

  // Every worker's `values`, by rank, bit for bit. All pass the same number. The row of a lost
  // worker is empty, whatever the others pass: where losses are tolerated ask present() first.
  // Called by: all workers, at any time, after the same step.
  std::vector<std::vector<double>> gather(const std::vector<double>& values);

  // The same for whole numbers of 64 bits: the row of a lost worker is empty, too.
  // Called by: all workers, at any time, after the same step.
  std::vector<std::vector<std::int64_t>> gather_integers(const std::vector<std::int64_t>& values);

  // Every worker's text or bytes, by rank, each of its own length. That of a lost worker is empty,
  // as one that was passed may be: present() says which.
  // Called by: all workers, at any time, after the same step.
  std::vector<std::string> gather_text(const std::string& text);

  // What rank `root` passes, on all workers; what the others pass does not matter, nor how much it
  // is. ConfigError for a root that there is not.
  // Called by: all workers, at any time, after the same step.
  std::vector<double> broadcast(const std::vector<double>& values, int root = 0);

  // The same for whole numbers of 64 bits.
  // Called by: all workers, at any time, after the same step.
  std::vector<std::int64_t> broadcast_integers(const std::vector<std::int64_t>& values,
                                               int root = 0);

  // The same for text or bytes.
  // Called by: all workers, at any time, after the same step.
  std::string broadcast_text(const std::string& text, int root = 0);

  class Calls;

  // Internal: the inside, for Skein's other layers. ConfigError for a worker that is not one of
  // these.
  Calls& calls() const;

 protected:
  // Internal: without calls, not one of them.
  explicit Workers(std::shared_ptr<Calls> calls) : calls_(std::move(calls)) {}

  // Internal: whether this worker is one of them.
  bool has_calls() const { return calls_ != nullptr; }

 private:
  std::shared_ptr<Calls> calls_;
};

}  // namespace skein
