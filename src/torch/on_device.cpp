// A module on a device: the order of what torch computes there and of what the strategy does, and
// how far the host is ahead of both. On the host nothing of it does anything.
#include <fmt/format.h>

#include <utility>

#include "kernels/kernels.h"
#include "torch/distributed_impl.h"
#include "torch/make_optimizer.h"

namespace skein {

// What torch writes there comes after what clears it.
std::unique_ptr<Memory> Distributed::Impl::allocate(std::size_t count) {
  const Span like{nullptr, 0, device()};
  if (!stream_.on_device()) return fabric().allocate_like(like, count, Type::f32);
  std::unique_ptr<Memory> memory;
  Mark cleared;
  const auto take = [&] {
    memory = fabric().allocate_like(like, count, Type::f32);
    cleared = world_.impl().loop().queue()->record();
  };
  has_loop_ ? take() : courier().with_loop(take);
  stream_.wait(cleared);
  return memory;
}

std::unique_ptr<Optimizer> Distributed::Impl::new_optimizer() {
  Allocate allocate = allocate_on_heap;
  if (stream_.on_device())
    allocate = [this](std::size_t count) {
      return world_.impl().loop().queue()->allocate(count, Type::f32);
    };
  return make_optimizer(recipe_, groups_, binding_, allocate);
}

// And where on the queue the last of it is.
Task<> Distributed::Impl::need(int bucket) {
  co_await strategy_->need(bucket);
  handed_over_ = strategy_->there(bucket);
}

// What the strategy does comes after what has been computed; where the queue is then is where
// computing goes on. On the host nothing is put between.
Task<> Distributed::Impl::after(Mark computed, Task<> task) {
  Queue* const queue = world_.impl().loop().queue();
  queue->wait(computed);
  co_await task;
  handed_over_ = queue->record();
}

void Distributed::Impl::trace_to(Trace* trace) {
  time_.pass_on_to(trace);
  if (!stream_.on_device()) return;
  courier().with_loop([this] { device_trace_ = std::make_unique<DeviceTrace>(time_, device()); });
}

Task<> Distributed::Impl::in_order(Task<> task) {
  return stream_.on_device() ? after(stream_.record(), std::move(task)) : std::move(task);
}

// What is computed from now on comes after what was waited for.
void Distributed::Impl::follow() { stream_.wait(std::exchange(handed_over_, nullptr)); }

void Distributed::Impl::wait_in_order(Task<> task) {
  wait(in_order(std::move(task)));
  follow();
}

// The host runs ahead of the device by two steps and no more: what is further ahead would only take
// memory, and nobody could stop it.
void Distributed::Impl::stay_near() {
  constexpr std::size_t kAhead = 2;
  if (!stream_.on_device()) return;
  computed_.push_back(stream_.record());
  if (computed_.size() <= kAhead) return;
  courier().wait(until_reached(world_.impl().loop(), computed_.front()));
  computed_.pop_front();
}

// Forward and backward of a step, as the device computes them.
void Distributed::Impl::trace_compute_begin() {
  if (device_trace_)
    courier().with_loop([this] { device_trace_->begin(Lane::device_compute, stream_.current()); });
}

void Distributed::Impl::trace_compute_end() {
  if (device_trace_)
    courier().with_loop([this] {
      device_trace_->end(Lane::device_compute, stream_.current(),
                         fmt::format("computing step {}", worker_.progress.steps + 1));
    });
}

void Distributed::Impl::hand_over(const std::function<void()>& work) {
  const Mark computed = stream_.record();
  Mark done;
  courier().with_loop([&] {
    if (computed) world_.impl().loop().queue()->wait(computed);
    work();
    if (stream_.on_device()) done = world_.impl().loop().queue()->record();
  });
  stream_.wait(done);
}

std::unique_ptr<Memory> Distributed::Impl::on_host(Span values) {
  auto memory = allocate_on_heap_of(values.type, values.count);
  hand_over([] {});
  world_.impl().finish([&] { copy(memory->span(), values); });
  return memory;
}

}  // namespace skein
