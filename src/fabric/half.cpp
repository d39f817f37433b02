#include "fabric/half.h"

#include <algorithm>

#include "fabric/collectives.h"
#include "kernels/bf16.h"

namespace skein {
namespace {

class HalfExchange {
 public:
  // `last`: of the operation's messages.
  HalfExchange(Fabric& fabric, const Operation& operation, Span buffer, LastMessages* last)
      : fabric_(fabric), operation_(operation), buffer_(buffer), last_(last) {}

  // Each peer gets its own shard of this rank's values.
  Task<> scatter() {
    const int ahead = static_cast<int>(fabric_.traits().chunking.ahead);
    const std::size_t largest = shard(buffer_.count, fabric_.size(), 0).count;
    std::vector<std::unique_ptr<Memory>> copies;
    for (int i = 0; i < std::min(ahead, fabric_.size() - 1); ++i)
      copies.push_back(fabric_.allocate_like(buffer_, largest, Type::bf16));
    for (int round = 1; round < fabric_.size(); ++round) {
      if (round > ahead) co_await fabric_.finish_sends(operation_, target(round - ahead));
      const Span values = part(target(round));
      if (values.count == 0) continue;
      const Span packed =
          copies[static_cast<std::size_t>(round) % copies.size()]->span().at({0, values.count});
      to_bf16(packed, values);
      co_await fabric_.start_send(operation_, target(round), packed);
    }
    co_await finish_all();
  }

  Task<> add_arrivals() {
    const Span own = part(fabric_.rank());
    if (own.count == 0) co_return all_awaited();
    const auto memory = fabric_.allocate_like(buffer_, own.count, Type::bf16);
    for (int round = 1; round < fabric_.size(); ++round) {
      if (round + 1 == fabric_.size()) all_awaited();
      co_await fabric_.receive_into(operation_, source(round), memory->span(), Combine::copy);
      add_bf16(own, memory->span());
    }
  }

  // Every peer gets this rank's own shard.
  Task<> hand_out() {
    const Span own = part(fabric_.rank());
    if (own.count == 0) co_return all_sent();
    const int ahead = static_cast<int>(fabric_.traits().chunking.ahead);
    const auto memory = fabric_.allocate_like(buffer_, own.count, Type::bf16);
    to_bf16(memory->span(), own);
    from_bf16(own, memory->span());
    for (int round = 1; round < fabric_.size(); ++round) {
      if (round > ahead) co_await fabric_.finish_sends(operation_, target(round - ahead));
      co_await fabric_.start_send(operation_, target(round), memory->span());
    }
    co_await finish_all();
  }

  Task<> take_arrivals() {
    const std::size_t largest = shard(buffer_.count, fabric_.size(), 0).count;
    const auto memory = fabric_.allocate_like(buffer_, largest, Type::bf16);
    for (int round = 1; round < fabric_.size(); ++round) {
      const Span values = part(source(round));
      if (round + 1 == fabric_.size()) all_awaited();
      if (values.count == 0) continue;
      const Span packed = memory->span().at({0, values.count});
      co_await fabric_.receive_into(operation_, source(round), packed, Combine::copy);
      from_bf16(values, packed);
    }
  }

 private:
  int source(int round) const { return (fabric_.rank() + round) % fabric_.size(); }
  int target(int round) const { return (fabric_.rank() - round + fabric_.size()) % fabric_.size(); }
  Span part(int rank) const { return buffer_.at(shard(buffer_.count, fabric_.size(), rank)); }

  void all_sent() {
    if (last_) last_->sent();
  }
  void all_awaited() {
    if (last_) last_->awaited();
  }

  Task<> finish_all() {
    all_sent();
    for (int round = 1; round < fabric_.size(); ++round)
      co_await fabric_.finish_sends(operation_, target(round));
  }

  Fabric& fabric_;
  const Operation& operation_;
  Span buffer_;
  LastMessages* last_;
};

Task<> both(Fabric& fabric, Task<> sending, Task<> receiving) {
  std::vector<Task<>> halves;
  halves.push_back(std::move(sending));
  halves.push_back(std::move(receiving));
  co_await all_of(fabric.loop(), std::move(halves));
}

}  // namespace

Task<> half_reduce_scatter(Fabric& fabric, const Operation& operation, Span buffer) {
  LastMessages last(fabric, operation);
  HalfExchange exchange(fabric, operation, buffer, &last);
  co_await both(fabric, exchange.scatter(), exchange.add_arrivals());
}

Task<> half_all_gather(Fabric& fabric, const Operation& operation, Span buffer) {
  LastMessages last(fabric, operation);
  HalfExchange exchange(fabric, operation, buffer, &last);
  co_await both(fabric, exchange.hand_out(), exchange.take_arrivals());
}

Task<> half_all_reduce(Fabric& fabric, const Operation& operation, Span buffer) {
  HalfExchange exchange(fabric, operation, buffer, nullptr);
  co_await both(fabric, exchange.scatter(), exchange.add_arrivals());
  co_await half_all_gather(fabric, operation, buffer);
}

}  // namespace skein
