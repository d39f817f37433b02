#include "strategy/move_state.h"

#include <algorithm>

#include "kernels/kernels.h"
#include "strategy/shards.h"

namespace skein {
namespace {

constexpr std::size_t kMessage = std::size_t{1} << 20;  // elements

struct Owned {
  Range range;
  int owner;
};

const Owned& owner_of(const std::vector<Owned>& all, std::size_t element) {
  return *std::ranges::partition_point(
      all, [&](const Owned& each) { return each.range.end() <= element; });
}

// The plane in order, without empty shards.
std::vector<Owned> owners(const Fabric& fabric, const BucketPlan& plan) {
  std::vector<Owned> all;
  for (int bucket = plan.count() - 1; bucket >= 0; --bucket)  // the last lies first
    for (int rank = 0; rank < fabric.size(); ++rank)
      if (const Range part = shard_of(fabric, plan, bucket, rank); part.count > 0)
        all.push_back({part, rank});
  std::ranges::sort(all, {}, [](const Owned& each) { return each.range.offset; });
  return all;
}

// One vector of the state. Sending and receiving go their own ways through the plane, both in its
// order: whatever comes first of what is not done yet has a worker that sends it and one that waits
// for it, so all of it gets done. What comes in does not run ahead of what goes out by more than a
// message: only what has gone out makes room.
class VectorMove {
 public:
  VectorMove(Worker& worker, Channel channel, const std::vector<Transfer>& all,
             OwnedState::Move& move, std::size_t vector)
      : worker_(worker),
        channel_(channel),
        all_(all),
        move_(move),
        vector_(vector),
        gone_(worker.loop()) {}

  Task<> send() {
    std::unique_ptr<Memory> memory;
    for (const Transfer& each : all_) {
      if (each.from == worker_.rank() && each.to != worker_.rank()) {
        const Span state = worker_.optimizer().owned_state().vector(vector_);
        if (!memory) memory = worker_.fabric().allocate_like(state, kMessage, Type::f32);
        const Span message = memory->span().at({0, each.range.count});
        copy(message, move_.before(vector_, each.range));
        co_await worker_.fabric().send(channel_, each.to, message, worker_.limit());
      }
      sent_ = each.range.end();
      forget();
      gone_.notify_all();
    }
  }

  Task<> receive() {
    for (const Transfer& each : all_) {
      if (each.to == worker_.rank()) {
        while (each.range.offset > sent_ + kMessage) co_await gone_.wait();
        const Span into = move_.now(vector_, {each.now, each.range.count});
        if (each.from == worker_.rank())
          copy(into, move_.before(vector_, each.range));
        else
          co_await worker_.fabric().receive(channel_, each.from, into, worker_.limit());
      }
      received_ = each.range.end();
      forget();
    }
  }

 private:
  void forget() { move_.forget(vector_, std::min(sent_, received_)); }

  Worker& worker_;
  Channel channel_;
  const std::vector<Transfer>& all_;
  OwnedState::Move& move_;
  std::size_t vector_;
  std::size_t sent_ = 0, received_ = 0;  // how far in the plane
  Signal gone_;
};

}  // namespace

std::vector<Transfer> transfers(const Fabric& fabric, const BucketPlan& before,
                                const BucketPlan& after, std::size_t longest) {
  std::size_t size = 0;
  for (int bucket = 0; bucket < before.count(); ++bucket)
    size = std::max(size, before.range(bucket).end());
  return transfers(fabric, before, after, longest, {{{0, size}, 0}});
}

std::vector<Transfer> transfers(const Fabric& fabric, const BucketPlan& before,
                                const BucketPlan& after, std::size_t longest,
                                const std::vector<Placed>& placed) {
  const auto old = owners(fabric, before), now = owners(fabric, after);
  std::vector<Transfer> all;
  for (const Placed& each : placed)
    for (std::size_t at = 0; at < each.before.count;) {
      const std::size_t was = each.before.offset + at, is = each.now + at;
      const Owned &from = owner_of(old, was), &to = owner_of(now, is);
      const std::size_t count =
          std::min({each.before.count - at, from.range.end() - was, to.range.end() - is, longest});
      all.push_back({{was, count}, from.owner, to.owner, is});
      at += count;
    }
  return all;
}

namespace {

Task<> make_transfers(Worker& worker, OwnedState::Move& move, const std::vector<Transfer>& all,
                      Channel channel) {
  const std::size_t vectors = worker.optimizer().owned_state().vector_count();
  for (std::size_t vector = 0; vector < vectors; ++vector) {
    VectorMove one(worker, channel, all, move, vector);
    std::vector<Task<>> both;
    both.push_back(one.send());
    both.push_back(one.receive());
    co_await all_of(worker.loop(), std::move(both));
  }
}

}  // namespace

Task<> move_state(Worker& worker, const BucketPlan& before, const BucketPlan& after,
                  Channel channel) {
  OwnedState& state = worker.optimizer().owned_state();
  const auto all = transfers(worker.fabric(), before, after, kMessage);
  OwnedState::Move move(state, shards_of(worker.fabric(), after, worker.rank()));
  co_await make_transfers(worker, move, all, channel);
}

Task<> move_state(Worker& worker, OwnedState& from, const std::vector<Transfer>& all,
                  Channel channel) {
  OwnedState::Move move(from, worker.optimizer().owned_state());
  co_await make_transfers(worker, move, all, channel);
}

Task<> move_state(Worker& worker, Optimizer& from, const BucketPlan& before,
                  const BucketPlan& after, const std::vector<Placed>& placed, Channel channel) {
  const auto all = transfers(worker.fabric(), before, after, kMessage, placed);
  co_await move_state(worker, from.owned_state(), all, channel);
}

Task<> bring_state(Worker& worker, const BucketPlan& plan, int to, Channel channel,
                   const TakeState& take) {
  const int rank = worker.rank();
  const auto all = transfers(worker.fabric(), plan, plan, kMessage);
  const OwnedState& owned = worker.optimizer().owned_state();
  const auto state = worker.optimizer().state();
  if (state.empty()) co_return;
  const auto memory = worker.fabric().allocate_like(state.begin()->second, kMessage, Type::f32);
  for (const auto& [name, vector] : state)
    for (const Transfer& each : all) {
      const Span message = memory->span().at({0, each.range.count});
      if (each.from == rank && rank == to) {
        take(name, each.range, vector.at(owned.place_of(each.range)));
      } else if (each.from == rank) {
        copy(message, vector.at(owned.place_of(each.range)));
        co_await worker.fabric().send(channel, to, message, worker.limit());
      } else if (rank == to) {
        co_await worker.fabric().receive(channel, each.from, message, worker.limit());
        take(name, each.range, message);
      }
    }
}

}  // namespace skein
