// Collectives written once, on point-to-point messages, for every fabric that has none of its own.
#pragma once

#include "fabric/fabric.h"

namespace skein {

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

// `steps` rounds around the ring. In round s, rank r sends part (first − s) and receives part
// (first − s − 1), all modulo size; what arrives in the first `add_steps` rounds is added, then
// copied. Parts are shards of `buffer`, cut in chunks so that a chunk goes on to the next rank
// while the following one arrives.
//   reduce-scatter: first = r − 1, N − 1 rounds, all added
//   all-gather:     first = r,     N − 1 rounds, none added
//   all-reduce:     first = r − 1, 2(N − 1) rounds, N − 1 added
// So part p is summed in the order p+1, p+2, …, p whichever fabric carries it.
Task<> ring_pass(Fabric& fabric, const Operation& operation, Span buffer, int first, int steps,
                 int add_steps);

// ⌈log2 N⌉ rounds (two more when N is not a power of two), each moving a record. In each round two
// groups of ranks become one, and all of it merge what the lower group has with what the other has:
// so all end with the same bits.
Task<> recursive_doubling(Fabric& fabric, const Operation& operation, Span record,
                          const Merge& merge);

// A binomial tree: ⌈log2 N⌉ rounds.
Task<> tree_broadcast(Fabric& fabric, const Operation& operation, Span buffer, int root);

}  // namespace skein
