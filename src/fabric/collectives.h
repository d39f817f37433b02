// What a fabric's collectives do when their turn has come, and how messages do it.
#pragma once

#include <cstddef>

#include "core/span.h"
#include "core/task.h"
#include "fabric/operation.h"

namespace skein {

class Fabric;

// The r-th of `size` equal parts of `count` elements. They start on cache lines; the last ones may
// be shorter or empty.
Range shard(std::size_t count, int size, int rank);

// Fabric says what each of them does. It calls them in turn, and only when there are several ranks.
class Collectives {
 public:
  virtual ~Collectives() = default;

  // The part of `count` elements that `rank` holds after a reduce-scatter.
  virtual Range part_of(std::size_t count, int rank) const = 0;
  virtual Task<> run_reduce_scatter(const Operation& operation, Span buffer, Wire wire) = 0;
  virtual Task<> run_all_gather(const Operation& operation, Span buffer, Wire wire) = 0;
  virtual Task<> run_all_reduce(const Operation& operation, Span buffer, Wire wire) = 0;
  virtual Task<> run_combine(const Operation& operation, Span record, const Merge& merge) = 0;
  virtual Task<> run_broadcast(const Operation& operation, Span buffer, int root) = 0;
  virtual Task<> run_exchange(const Operation& operation, int peer, Span out, Span in) = 0;
};

// Collectives written once, on a fabric's messages, for every fabric that has none of its own:
// rings, which sum part p in the order p+1, p+2, …, p whichever fabric carries it, recursive
// doubling and binomial trees. With Wire::bf16 those of fabric/half.h.
class MessageCollectives : public Collectives {
 public:
  explicit MessageCollectives(Fabric& fabric) : fabric_(fabric) {}

  Range part_of(std::size_t count, int rank) const override;
  Task<> run_reduce_scatter(const Operation& operation, Span buffer, Wire wire) override;
  Task<> run_all_gather(const Operation& operation, Span buffer, Wire wire) override;
  Task<> run_all_reduce(const Operation& operation, Span buffer, Wire wire) override;
  Task<> run_combine(const Operation& operation, Span record, const Merge& merge) override;
  Task<> run_broadcast(const Operation& operation, Span buffer, int root) override;
  Task<> run_exchange(const Operation& operation, int peer, Span out, Span in) override;

 private:
  Fabric& fabric_;
};

// Lets the next collective on the channel begin as soon as this one has begun its last message in
// either direction.
class LastMessages {
 public:
  LastMessages(Fabric& fabric, const Operation& operation)
      : fabric_(fabric), operation_(operation) {}
  void sent() { begun(sent_); }        // after the start_send() of the last one
  void awaited() { begun(awaited_); }  // just before the receive_into() of the last one

 private:
  void begun(bool& half);

  Fabric& fabric_;
  const Operation& operation_;
  bool sent_ = false, awaited_ = false;
};

}  // namespace skein
