#include "fabric/collectives.h"

#include <algorithm>
#include <bit>

#include "fabric/fabric.h"
#include "fabric/half.h"
#include "kernels/kernels.h"

namespace skein {

Range shard(std::size_t count, int size, int rank) {
  constexpr std::size_t kAlign = 16;
  const auto n = static_cast<std::size_t>(size);
  const std::size_t part = (count + n * kAlign - 1) / (n * kAlign) * kAlign;
  const std::size_t begin = std::min(count, part * static_cast<std::size_t>(rank));
  return {begin, std::min(part, count - begin)};
}

void LastMessages::begun(bool& half) {
  half = true;
  if (sent_ && awaited_) fabric_.next_may_begin(operation_);
}

namespace {

// One walk around the ring: a sender that follows a receiver, chunk by chunk.
class RingPass {
 public:
  RingPass(Fabric& fabric, const Operation& operation, Span buffer, int first, int steps,
           int add_steps)
      : fabric_(fabric),
        operation_(operation),
        buffer_(buffer),
        first_(first),
        steps_(steps),
        add_steps_(add_steps),
        arrived_(fabric.loop()),
        last_(fabric, operation) {
    const std::size_t largest = shard(buffer.count, fabric.size(), 0).count;
    const Chunking chunking = fabric.traits().chunking;
    chunk_ = std::max(chunking.least, (largest + chunking.most - 1) / chunking.most);
    chunks_ = std::max<std::size_t>(1, (largest + chunk_ - 1) / chunk_);
  }

  Task<> send() {
    const int next = (fabric_.rank() + 1) % fabric_.size();
    for (int step = 0; step < steps_; ++step) {
      for (std::size_t k = 0; k < chunks_; ++k) {
        // What goes out in this round came in during the one before.
        const std::size_t needed =
            step == 0 ? 0 : (static_cast<std::size_t>(step) - 1) * chunks_ + k + 1;
        while (received_ < needed) co_await arrived_.wait();
        co_await fabric_.start_send(operation_, next, chunk(first_ - step, k));
      }
    }
    last_.sent();
    co_await fabric_.finish_sends(operation_, next);
  }

  Task<> receive() {
    const int previous = (fabric_.rank() + fabric_.size() - 1) % fabric_.size();
    for (int step = 0; step < steps_; ++step) {
      const Combine combine = step < add_steps_ ? Combine::add : Combine::copy;
      for (std::size_t k = 0; k < chunks_; ++k) {
        if (step + 1 == steps_ && k + 1 == chunks_) last_.awaited();
        co_await fabric_.receive_into(operation_, previous, chunk(first_ - step - 1, k), combine);
        ++received_;
        arrived_.notify_all();
      }
    }
  }

 private:
  Span chunk(int part, std::size_t k) const {
    const int size = fabric_.size();
    const Range whole = shard(buffer_.count, size, ((part % size) + size) % size);
    const std::size_t begin = std::min(whole.count, k * chunk_);
    return buffer_.at({whole.offset + begin, std::min(chunk_, whole.count - begin)});
  }

  Fabric& fabric_;
  const Operation& operation_;
  Span buffer_;
  int first_, steps_, add_steps_;
  std::size_t chunk_ = 0, chunks_ = 0;
  std::size_t received_ = 0;
  Signal arrived_;
  LastMessages last_;
};

Task<> send_whole(Fabric& fabric, const Operation& operation, int peer, Span data) {
  co_await fabric.start_send(operation, peer, data);
  co_await fabric.finish_sends(operation, peer);
}

// `steps` rounds around the ring. In round s, rank r sends part (first − s) and receives part
// (first − s − 1), all modulo size; what arrives in the first `add_steps` rounds is added, then
// copied. Parts are shards of `buffer`, cut in chunks so that a chunk goes on to the next rank
// while the following one arrives.
//   reduce-scatter: first = r − 1, N − 1 rounds, all added
//   all-gather:     first = r,     N − 1 rounds, none added
//   all-reduce:     first = r − 1, 2(N − 1) rounds, N − 1 added
// So part p is summed in the order p+1, p+2, …, p.
Task<> ring_pass(Fabric& fabric, const Operation& operation, Span buffer, int first, int steps,
                 int add_steps) {
  RingPass pass(fabric, operation, buffer, first, steps, add_steps);
  std::vector<Task<>> halves;
  halves.push_back(pass.send());
  halves.push_back(pass.receive());
  co_await all_of(fabric.loop(), std::move(halves));
}

// ⌈log2 N⌉ rounds (two more when N is not a power of two), each moving a record. In each round two
// groups of ranks become one, and all of it merge what the lower group has with what the other has:
// so all end with the same bits.
Task<> recursive_doubling(Fabric& fabric, const Operation& operation, Span record,
                          const Merge& merge) {
  const int rank = fabric.rank();
  const int power = static_cast<int>(std::bit_floor(static_cast<unsigned>(fabric.size())));
  const int extra = fabric.size() - power;
  const auto out = fabric.allocate(record.count, Type::byte);
  const auto in = allocate_on_heap_of(Type::byte, record.count);
  const Span mine = out->span(), theirs = in->span();
  copy(mine, record);
  // Ranks beyond the power of two hand their record to a partner and get the result back.
  if (rank >= power) {
    co_await send_whole(fabric, operation, rank - power, mine);
    co_await fabric.receive_into(operation, rank - power, record, Combine::copy);
    co_return;
  }
  if (rank < extra) {
    co_await fabric.receive_into(operation, rank + power, theirs, Combine::copy);
    merge(mine.host_bytes(), theirs.host_bytes());
  }
  for (int distance = 1; distance < power; distance *= 2) {
    const int peer = rank ^ distance;
    co_await fabric.start_send(operation, peer, mine);
    co_await fabric.receive_into(operation, peer, theirs, Combine::copy);
    co_await fabric.finish_sends(operation, peer);
    const bool lower = rank < peer;
    merge((lower ? mine : theirs).host_bytes(), (lower ? theirs : mine).host_bytes());
    if (!lower) copy(mine, theirs);
  }
  if (rank < extra) co_await send_whole(fabric, operation, rank + power, mine);
  copy(record, mine);
}

// A binomial tree: ⌈log2 N⌉ rounds.
Task<> tree_broadcast(Fabric& fabric, const Operation& operation, Span buffer, int root) {
  const int size = fabric.size();
  const int relative = (fabric.rank() - root + size) % size;
  const auto rank_of = [&](int r) { return (r + root) % size; };
  int distance = 1;
  for (; distance < size; distance *= 2) {
    if (relative & distance) {
      co_await fabric.receive_into(operation, rank_of(relative - distance), buffer, Combine::copy);
      break;
    }
  }
  for (distance /= 2; distance > 0; distance /= 2)
    if (relative + distance < size)
      co_await send_whole(fabric, operation, rank_of(relative + distance), buffer);
}

}  // namespace

Range MessageCollectives::part_of(std::size_t count, int rank) const {
  return shard(count, fabric_.size(), rank);
}

Task<> MessageCollectives::run_reduce_scatter(const Operation& operation, Span buffer, Wire wire) {
  const int rank = fabric_.rank(), rounds = fabric_.size() - 1;
  if (wire == Wire::bf16)
    co_await half_reduce_scatter(fabric_, operation, buffer);
  else
    co_await ring_pass(fabric_, operation, buffer, rank - 1, rounds, rounds);
}

Task<> MessageCollectives::run_all_gather(const Operation& operation, Span buffer, Wire wire) {
  const int rank = fabric_.rank(), rounds = fabric_.size() - 1;
  if (wire == Wire::bf16)
    co_await half_all_gather(fabric_, operation, buffer);
  else
    co_await ring_pass(fabric_, operation, buffer, rank, rounds, 0);
}

Task<> MessageCollectives::run_all_reduce(const Operation& operation, Span buffer, Wire wire) {
  const int rank = fabric_.rank(), rounds = fabric_.size() - 1;
  if (wire == Wire::bf16)
    co_await half_all_reduce(fabric_, operation, buffer);
  else
    co_await ring_pass(fabric_, operation, buffer, rank - 1, 2 * rounds, rounds);
}

Task<> MessageCollectives::run_combine(const Operation& operation, Span record,
                                       const Merge& merge) {
  co_await recursive_doubling(fabric_, operation, record, merge);
}

Task<> MessageCollectives::run_broadcast(const Operation& operation, Span buffer, int root) {
  co_await tree_broadcast(fabric_, operation, buffer, root);
}

Task<> MessageCollectives::run_exchange(const Operation& operation, int peer, Span out, Span in) {
  Fabric::Sending sending(fabric_, operation, peer);
  co_await sending.start(out);
  co_await fabric_.receive_into(operation, peer, in, Combine::copy);
  co_await sending.finish();
}

}  // namespace skein
