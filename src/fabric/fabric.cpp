#include "fabric/fabric.h"

#include <fmt/format.h>

#include "fabric/carrier.h"
#include "kernels/kernels.h"
#include "skein/error.h"

namespace skein {

std::unique_ptr<Memory> Fabric::allocate_like(Span like, std::size_t count, Type type) {
  if (like.device == Device::absent) return allocate_absent_of(type, count);
  return like.device == Device::cpu ? allocate_on(Device::cpu, count, type) : allocate(count, type);
}

std::unique_ptr<Memory> Fabric::allocate(std::size_t count, Type type) {
  const bool on_device = loop_.queue() && type != Type::byte;
  return allocate_on(on_device ? Device::gpu : Device::cpu, count, type);
}

Channel Fabric::allot_channels() {
  if (next_channels_ + kChannelBlock > kMostHandedOut)
    throw ConfigError(fmt::format(
        "{} models have been distributed in this run: a run takes no more, since each keeps its "
        "channels to the end",
        kMostHandedOut / kChannelBlock - 1));
  next_channels_ += kChannelBlock;
  return next_channels_ - kChannelBlock;
}

Task<> Fabric::reduce_scatter(Channel channel, Span buffer, Limit limit, Wire wire) {
  if (size() == 1) co_return;
  const Operation operation = turns_.begin("reduce_scatter", channel, limit);
  co_await turns_.run(operation, collectives_.run_reduce_scatter(operation, buffer, wire));
}

Task<> Fabric::all_gather(Channel channel, Span buffer, Limit limit, Wire wire) {
  if (size() == 1) co_return;
  const Operation operation = turns_.begin("all_gather", channel, limit);
  co_await turns_.run(operation, collectives_.run_all_gather(operation, buffer, wire));
}

Task<> Fabric::all_reduce(Channel channel, Span buffer, Limit limit, Wire wire) {
  if (size() == 1) co_return;
  const Operation operation = turns_.begin("all_reduce", channel, limit);
  co_await turns_.run(operation, collectives_.run_all_reduce(operation, buffer, wire));
}

Task<> Fabric::combine(Channel channel, Span record, const Merge& merge, Limit limit) {
  SKEIN_CHECK(record.type == Type::byte, "a record that is not bytes");
  if (size() == 1) co_return;
  const Operation operation = turns_.begin("combine", channel, limit);
  co_await turns_.run(operation, collectives_.run_combine(operation, record, merge));
}

Task<> Fabric::broadcast(Channel channel, Span buffer, int root, Limit limit) {
  SKEIN_CHECK(root >= 0 && root < size(), "root {} of {} ranks", root, size());
  if (size() == 1) co_return;
  const Operation operation = turns_.begin("broadcast", channel, limit);
  co_await turns_.run(operation, collectives_.run_broadcast(operation, buffer, root));
}

Task<> Fabric::barrier(Channel channel, Limit limit) {
  if (size() == 1) co_return;
  std::byte nothing{};
  const Merge merge = [](auto, auto) {};
  const Operation operation = turns_.begin("barrier", channel, limit);
  co_await turns_.run(operation,
                      collectives_.run_combine(operation, message_of({&nothing, 1}), merge));
}

Fabric::Route Fabric::checked_route(int peer, Channel channel, const char* direction) {
  SKEIN_CHECK(peer >= 0 && peer < size() && peer != rank(), "a message {} rank {} of {}", direction,
              peer, size());
  SKEIN_CHECK(channel >= 0 && channel < kMostChannels, "channel {} of {}", channel, kMostChannels);
  return route(peer, channel);
}

Task<> Fabric::start_send(const Operation& operation, int peer, Span data) {
  const auto [carrier, its_peer, channel] = checked_route(peer, operation.channel, "to");
  return carrier.start_send_on(carrier.line_to(its_peer, channel), operation, data);
}

Task<> Fabric::finish_sends(const Operation& operation, int peer) {
  const auto [carrier, its_peer, channel] = checked_route(peer, operation.channel, "to");
  return carrier.finish_sends_on(carrier.line_to(its_peer, channel), operation);
}

Task<> Fabric::receive_into(const Operation& operation, int peer, Span into, Combine combine) {
  const auto [carrier, its_peer, channel] = checked_route(peer, operation.channel, "from");
  return carrier.receive_on(carrier.line_from(its_peer, channel), operation, into, combine);
}

void Fabric::give_up_sends(const Operation& operation) {
  for (int peer = 0; peer < size(); ++peer) {
    if (peer == rank()) continue;
    const auto [carrier, its_peer, channel] = route(peer, operation.channel);
    carrier.give_up_untaken(its_peer, channel, operation);
  }
}

void Fabric::give_up_sends_to(const Operation& operation, int peer) {
  const auto [carrier, its_peer, channel] = checked_route(peer, operation.channel, "to");
  carrier.give_up(carrier.line_to(its_peer, channel), operation);
}

Fabric::Sending::~Sending() {
  if (!open_) return;
  const auto [carrier, peer, channel] = fabric_.route(peer_, operation_.channel);
  carrier.give_up_untaken(peer, channel, operation_);
}

Task<> Fabric::Sending::start(Span data) {
  open_ = true;
  co_await fabric_.start_send(operation_, peer_, data);
}

Task<> Fabric::Sending::finish() {
  co_await fabric_.finish_sends(operation_, peer_);
  open_ = false;
}

Task<> Fabric::send(Channel channel, int peer, Span data, Limit limit) {
  const Operation operation{"send", channel, 0, limit};
  co_await start_send(operation, peer, data);
  co_await finish_sends(operation, peer);
}

Task<> Fabric::receive(Channel channel, int peer, Span into, Limit limit) {
  const Operation operation{"receive", channel, 0, limit};
  co_await receive_into(operation, peer, into, Combine::copy);
}

Task<> Fabric::exchange(Channel channel, int peer, Span out, Span in, Limit limit) {
  const Operation operation{"exchange", channel, 0, limit};
  co_await collectives_.run_exchange(operation, peer, out, in);
}

// The message outlives this worker's part in the run where a fabric can: nothing takes it back.
Task<> Fabric::deliver(Operation operation, int peer, std::unique_ptr<Memory> message) {
  try {
    co_await start_send(operation, peer, message->span());
    const Route its = route(peer, operation.channel);
    Carrier::Line& line = its.carrier.line_to(its.peer, its.channel);
    co_await its.carrier.wait_until_taken(operation, line, line.serving);
  } catch (const IoError&) {  // nobody waits to hear of it
  }
}

void Fabric::send_and_forget(Channel channel, int peer, Span data) {
  SKEIN_CHECK(data.device == Device::cpu, "only memory of the host is sent and forgotten");
  auto message = allocate_on_heap_of(data.type, data.count);
  copy(message->span(), data);
  loop_.spawn(deliver({"send", channel, 0, kNever}, peer, std::move(message)));
}

}  // namespace skein
