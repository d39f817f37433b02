#include "fabric/local/device_side.h"

#include <fmt/format.h>

#include <algorithm>
#include <thread>

#include "skein/error.h"

namespace skein {
namespace {

// More than any value of a count.
constexpr std::uint64_t kLetGo = std::uint64_t{1} << 62;

// How long a worker that leaves waits for peers that live.
constexpr Duration kLeavePatience = std::chrono::seconds(30);

Sharing& sharing_of(Queue& queue) {
  Sharing* const sharing = queue.sharing();
  if (!sharing) throw Error("no other process can reach memory of its device");
  return *sharing;
}

}  // namespace

DeviceSide::DeviceSide(Queue& queue, std::vector<shm::Header*> headers, int rank,
                       std::function<bool(int)> died)
    : queue_(queue),
      sharing_(sharing_of(queue)),
      headers_(std::move(headers)),
      rank_(rank),
      died_(std::move(died)),
      value_(count(rank).load()),
      told_(shm::kMostBlocks),
      peers_(headers_.size()) {
  std::size_t used = 0;
  try {
    for (; used < headers_.size(); ++used) sharing_.use(headers_[used]->device.count);
  } catch (...) {
    while (used > 0) sharing_.forget(headers_[--used]->device.count);
    throw;
  }
}

// Errors of the device have been seen by those who put work on it.
DeviceSide::~DeviceSide() {
  try {
    const SteadyClock clock;
    const Time until = clock.now() + kLeavePatience;
    for (const Mark end = queue_.record(); !skein::reached(end);) {
      clock.now() < until ? let_go_of_the_dead() : let_go_of_all();
      std::this_thread::sleep_for(std::chrono::microseconds(100));
    }
    peers_.clear();
    queue_.finish();
    for (shm::Header* const each : headers_) sharing_.forget(each->device.count);
    for (auto& [channel, memory] : copies_) sharing_.keep(std::move(memory));
  } catch (const std::exception&) {
  }
}

std::uint64_t DeviceSide::record() {
  sharing_.raise(count(rank_), ++value_);
  return value_;
}

bool DeviceSide::reached(int peer, std::uint64_t value) const {
  const std::uint64_t now = count(peer).load(std::memory_order_acquire);
  return now >= value && now < kLetGo;
}

void DeviceSide::wait_for(int peer, std::uint64_t value) {
  Peer& other = peers_[static_cast<std::size_t>(peer)];
  if (value <= other.awaited || reached(peer, value)) return;
  sharing_.wait_for(count(peer), value);
  other.awaited = value;
}

void DeviceSide::let_go_of_the_dead() {
  for (int peer = 0; peer < std::ssize(peers_); ++peer)
    if (count(peer).load(std::memory_order_acquire) < kLetGo && died_(peer))
      count(peer).store(kLetGo, std::memory_order_release);
}

void DeviceSide::let_go_of_all() {
  for (int peer = 0; peer < std::ssize(peers_); ++peer)
    if (peers_[static_cast<std::size_t>(peer)].awaited >
        count(peer).load(std::memory_order_acquire))
      count(peer).store(kLetGo, std::memory_order_release);
}

std::unique_ptr<Memory> DeviceSide::allocate(std::size_t count, Type type) {
  return sharing_.allocate(count, type);
}

std::optional<shm::Place> DeviceSide::place_of(Span memory) {
  if (memory.count == 0) return shm::Place{};
  const auto place = sharing_.place_of(memory);
  if (!place || place->number >= shm::kMostBlocks) return std::nullopt;
  if (!told_[place->number]) {
    headers_[static_cast<std::size_t>(rank_)]->blocks[place->number] = place->block;
    told_[place->number] = true;
  }
  return shm::Place{place->number, place->block.bytes, place->offset, memory.bytes()};
}

Span DeviceSide::at(int peer, int name, const shm::Place& place, Type type) {
  if (place.bytes == 0) return {nullptr, 0, queue_.device(), type};
  const auto lies = [&] {
    const std::size_t size = size_of(type);
    return place.part < shm::kMostBlocks && place.offset % size == 0 && place.bytes % size == 0 &&
           place.offset <= place.part_bytes && place.bytes <= place.part_bytes - place.offset;
  };
  if (!lies())
    throw IoError(fmt::format("rank {} offers memory that it does not have", name), name);
  auto& opened = peers_[static_cast<std::size_t>(peer)].opened;
  if (opened.size() <= place.part) opened.resize(place.part + 1);
  std::unique_ptr<Memory>& block = opened[place.part];
  if (!block) {
    const SharedBlock theirs = headers_[static_cast<std::size_t>(peer)]->blocks[place.part];
    if (theirs.bytes != place.part_bytes)
      throw IoError(fmt::format("rank {} offers memory that it does not have", name), name);
    try {
      block = sharing_.open(theirs);
    } catch (const Error& error) {
      throw IoError(fmt::format("memory of rank {}: {}", name, error.what()), name);
    }
  }
  const Span bytes = block->span().at({place.offset, place.bytes});
  return {bytes.data, place.bytes / size_of(type), bytes.device, type};
}

Span DeviceSide::copies(Channel channel, std::size_t bytes) {
  auto& memory = copies_[channel];
  if (!memory) memory = sharing_.allocate(2 * bytes, Type::byte);
  return memory->span();
}

}  // namespace skein
