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
// called what ("rank 0 called gather of 2 values, rank 1 called sum of 3 values"), and all may go
// on. When a worker dies, or does not come within JoinOptions::patience, the others throw an
// IoError that names it and the call; after that no call succeeds. Results have the same bits on
// all workers. With one worker everything returns at once. Not thread-safe.
//
// Where losses are tolerated (strategies `gossip` and `acid`) a World's calls are of the workers
// that live: a lost one counts for nothing, and what is gathered of it is empty.
class Workers {
 public:
  int rank() const;  // of this worker among these: 0 to size() - 1
  int size() const;  // how many workers there are

  // Returns when every worker has called it. `name` appears in errors: "rank 2 has not come to
  // barrier 'after loading'".
  void barrier(const std::string& name = {});

  // Every worker's `values`, added up one by one. All pass the same number. For figures such as
  // losses and counts: they are added as doubles, in the order of ranks, so that whole numbers are
  // exact as long as the sum is below 2^53. A tensor is summed by all_reduce()
  // (skein/torch_tensors.h).
  std::vector<double> sum(const std::vector<double>& values);

  // The same for whole numbers of 64 bits: exact; a sum that is too large wraps.
  std::vector<std::int64_t> sum_integers(const std::vector<std::int64_t>& values);

  // The largest of the workers' `values`, one by one. All pass the same number. NaN where any
  // worker's is NaN; of equal zeros that of the lowest rank.
  std::vector<double> max(const std::vector<double>& values);

  // The smallest, by the same rules.
  std::vector<double> min(const std::vector<double>& values);

  // The largest of whole numbers of 64 bits.
  std::vector<std::int64_t> max_integers(const std::vector<std::int64_t>& values);

  // The smallest of them.
  std::vector<std::int64_t> min_integers(const std::vector<std::int64_t>& values);

  // Every worker's `values`, by rank, bit for bit. All pass the same number.
  std::vector<std::vector<double>> gather(const std::vector<double>& values);

  // The same for whole numbers of 64 bits.
  std::vector<std::vector<std::int64_t>> gather_integers(const std::vector<std::int64_t>& values);

  // Every worker's text or bytes, by rank, each of its own length.
  std::vector<std::string> gather_text(const std::string& text);

  // What rank `root` passes, on all workers; what the others pass does not matter, nor how much it
  // is. ConfigError for a root that there is not.
  std::vector<double> broadcast(const std::vector<double>& values, int root = 0);

  // The same for whole numbers of 64 bits.
  std::vector<std::int64_t> broadcast_integers(const std::vector<std::int64_t>& values,
                                               int root = 0);

  // The same for text or bytes.
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
