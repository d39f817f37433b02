// The local fabric's messages in memory of devices: a receiver's queue reads them where they lie.
#include "fabric/local/peer_state.h"
#include "kernels/kernels.h"

namespace skein {

using shm::Letter;

// What peers cannot open is sent from a copy that they can.
Letter LocalFabric::device_letter(LocalLine& line, Span data) {
  auto place = device_->place_of(data);
  if (!place) {
    line.staged.push_back({line.serving, device_->allocate(data.count, data.type)});
    const Span staged = line.staged.back().memory->span();
    if (staged.count > 0) copy(staged, data);
    place = device_->place_of(staged);
  }
  if (!place) throw Error("a message: too much memory is shared");
  return {*place, 0, device_->record()};
}

// What was sent may change when the receiver's queue has read what it has taken.
void LocalFabric::wait_for_readers(LocalLine& line) {
  if (device_) device_->wait_for(line.index, line.box.read_by.load(std::memory_order_acquire));
}

// A count rings no bell, so it is looked at now and then.
Task<> LocalFabric::until_ready(const Operation& operation, LocalLine& line, const Letter& letter) {
  constexpr Duration kFirst = std::chrono::microseconds(20),
                     kLongest = std::chrono::milliseconds(1);
  const Time begin = loop().now();
  WaitEnd wait_end(operation.limit, begin);
  Time looked = begin;
  for (Duration pause = kFirst; !device_->reached(line.index, letter.ready);
       pause = std::min(2 * pause, kLongest)) {
    const Time now = loop().now();
    const bool look = now - looked >= shm::Doorbell::kLookAround;
    if (look) looked = now;
    const std::string trouble = trouble_with(line.index, look);
    if (device_->reached(line.index, letter.ready)) break;
    if (!trouble.empty()) device_->let_go_of_the_dead();
    if (!trouble.empty())
      throw IoError(
          fmt::format("{} waits for rank {}, {}", describe(operation), line.peer, trouble),
          line.peer);
    if (line.box.withdrawn.load(std::memory_order_acquire) != 0) break;  // take() says so
    const Time end = wait_end.at(now, last_sign(line.index));
    if (now >= end) throw TooLate(operation, line.peer);
    co_await loop().sleep_for(pause);
  }
}

// The message of a worker that dies is lost if its queue had not come to it: so who goes on without
// that worker waits until it has. In a collective nobody does, and the queues wait for each other.
Task<> LocalFabric::take_from_device(const Operation& operation, LocalLine& line,
                                     const Letter& letter, Span into, Combine combine) {
  if (!operation.of_all) co_await until_ready(operation, line, letter);
  const Span sent = device_->at(line.index, line.peer, letter.place, into.type);
  device_->wait_for(line.index, letter.ready);
  if (into.device.kind == Device::gpu) {
    if (into.count > 0) combine == Combine::add ? add(into, sent) : copy(into, sent);
    line.box.read_by.store(device_->record(), std::memory_order_release);
    co_return;
  }
  const auto arrived = loop().queue()->allocate_on_host(into.count, into.type);
  if (into.count > 0) copy(arrived->span(), sent);
  co_await until_reached(loop(), loop().queue()->record());
  combine == Combine::add ? add(into, arrived->span()) : copy(into, arrived->span());
}

}  // namespace skein
