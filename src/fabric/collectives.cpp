#include "fabric/collectives.h"

#include <algorithm>
#include <bit>

#include "kernels/kernels.h"

namespace skein {

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
    const Chunking chunking = fabric.chunking();
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

}  // namespace

Task<> ring_pass(Fabric& fabric, const Operation& operation, Span buffer, int first, int steps,
                 int add_steps) {
  RingPass pass(fabric, operation, buffer, first, steps, add_steps);
  std::vector<Task<>> halves;
  halves.push_back(pass.send());
  halves.push_back(pass.receive());
  co_await all_of(fabric.loop(), std::move(halves));
}

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

}  // namespace skein
