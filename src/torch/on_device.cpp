// Memory where the module computes.
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

std::unique_ptr<Memory> Distributed::Impl::on_host(Span values) {
  auto memory = allocate_on_heap_of(values.type, values.count);
  driver_.in_order([] {});
  world_.impl().finish([&] { copy(memory->span(), values); });
  return memory;
}

}  // namespace skein
