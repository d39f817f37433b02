// Whether the workers of a host can use each other's memory of devices: all find out together.
#include <array>
#include <cstring>
#include <thread>

#include "fabric/local/peer_state.h"
#include "fabric/rows.h"
#include "kernels/kernels.h"

namespace skein {
namespace {

// A channel that only collectives of this fabric come to.
constexpr Channel kMeeting = kMostChannels - 1;

// How long a read of memory that can be read may take.
constexpr Duration kPatience = std::chrono::seconds(20);

// And how long a worker that leaves waits for the others.
constexpr Duration kLeaving = std::chrono::seconds(2);

constexpr std::size_t kProbe = 64;  // floats

float probe_of(int rank) { return 1000.F + static_cast<float>(rank); }

}  // namespace

struct LocalFabric::DeviceAnswer {
  std::uint8_t has = 0;        // a queue of a device
  std::uint8_t as_before = 0;  // the one that all have met with
  std::array<char, 214> trouble{};
  shm::Place place{};
  std::uint64_t ready = 0;

  void say(const std::string& what) {
    std::memcpy(trouble.data(), what.data(), std::min(what.size(), trouble.size() - 1));
  }
};

Task<std::vector<LocalFabric::DeviceAnswer>> LocalFabric::hear_all(DeviceAnswer own, Limit limit) {
  Rows table(size(), sizeof(own));
  table.put(rank(), std::as_bytes(std::span(&own, 1)));
  const Merge merge = table.merge();
  co_await combine(kMeeting, table.record(), merge, limit);
  std::vector<DeviceAnswer> all(static_cast<std::size_t>(size()));
  for (int each = 0; each < size(); ++each)
    std::memcpy(&all[static_cast<std::size_t>(each)], table.row(each).value().data(), sizeof(own));
  co_return all;
}

// Empty: nobody has anything to say.
std::string LocalFabric::first_trouble(const std::vector<DeviceAnswer>& answers) const {
  for (std::size_t each = 0; each < answers.size(); ++each)
    if (answers[each].trouble.front() != '\0')
      return fmt::format("rank {}: {}", named(static_cast<int>(each)),
                         answers[each].trouble.data());
  return "";
}

std::unique_ptr<Memory> LocalFabric::prepare_device(DeviceAnswer& answer) {
  try {
    std::vector<shm::Header*> headers(static_cast<std::size_t>(size()));
    for (int each = 0; each < size(); ++each)
      headers[static_cast<std::size_t>(each)] = &header(each);
    device_ =
        std::make_unique<DeviceSide>(*loop().queue(), std::move(headers), rank(), [this](int peer) {
          return peer != rank() && !trouble_with(peer, true).empty() && state(peer).dead;
        });
    auto probe = device_->allocate(kProbe, Type::f32);
    fill(probe->span(), probe_of(rank()));
    const auto place = device_->place_of(probe->span());
    if (!place) throw Error("memory of its device cannot be shared");
    answer.place = *place;
    answer.ready = device_->record();
    return probe;
  } catch (const Error& error) {
    device_.reset();
    answer.say(error.what());
    return nullptr;
  }
}

// What keeps this worker from reading its peers' memory; empty: nothing.
Task<std::string> LocalFabric::read_probes(std::vector<DeviceAnswer> answers) {
  const auto seen = loop().queue()->allocate_on_host(kProbe * answers.size(), Type::f32);
  fill(seen->span(), 0);
  std::string trouble;
  for (int peer = 0; peer < size() && trouble.empty(); ++peer) {
    const DeviceAnswer& theirs = answers[static_cast<std::size_t>(peer)];
    if (peer == rank()) continue;
    try {
      const Span probe = device_->at(peer, named(peer), theirs.place, Type::f32);
      device_->wait_for(peer, theirs.ready);
      copy(seen->span().at({kProbe * static_cast<std::size_t>(peer), kProbe}), probe);
    } catch (const Error& error) {
      trouble = error.what();
    }
  }
  const Mark copied = loop().queue()->record();
  const Time until = loop().now() + kPatience;
  while (!reached(copied)) {
    co_await loop().sleep_for(std::chrono::microseconds(200));
    device_->let_go_of_the_dead();
    if (loop().now() < until) continue;
    trouble = "a wait for another worker's device did not end";
    device_->let_go_of_all();
  }
  for (int peer = 0; peer < size() && trouble.empty(); ++peer)
    for (const float value :
         seen->span().at({kProbe * static_cast<std::size_t>(peer), kProbe}).host())
      if (peer != rank() && value != probe_of(peer) && trouble.empty())
        trouble = fmt::format("it read {} in the memory of rank {}, expected {}", value,
                              named(peer), probe_of(peer));
  co_return trouble;
}

Task<> LocalFabric::meet_on_device(Limit limit) {
  if (size() == 1 || options_.link.on()) co_return;
  DeviceAnswer own;
  own.has = loop().queue() ? 1 : 0;
  own.as_before = device_ && &device_->queue() == loop().queue() ? 1 : 0;
  auto answers = co_await hear_all(own, limit);
  const auto all = [&](std::uint8_t DeviceAnswer::*what) {
    return std::ranges::all_of(answers, [&](const DeviceAnswer& each) { return each.*what != 0; });
  };
  if (all(&DeviceAnswer::as_before)) co_return;
  device_.reset();
  why_staged_.clear();
  if (!all(&DeviceAnswer::has)) co_return;
  const auto probe = prepare_device(own);
  answers = co_await hear_all(own, limit);
  why_staged_ = first_trouble(answers);
  if (why_staged_.empty()) {
    own.say(co_await read_probes(answers));
    answers = co_await hear_all(own, limit);
    why_staged_ = first_trouble(answers);
  }
  if (!why_staged_.empty()) device_.reset();
}

// What is read after a small collective has ended is a copy in memory of this process, which a peer
// may not even have opened yet. Everything else has been waited for by the queue.
void LocalFabric::leave_device() {
  const SteadyClock clock;
  const Time until = clock.now() + kLeaving;
  for (const auto& [channel, small] : small_on_device_) {
    if (header(rank()).desks[channel].given_up.load() != 0) continue;
    for (int peer = 0; peer < size(); ++peer) {
      const shm::Desk& desk = header(peer).desks[channel];
      const auto has_read = [&, last = small.last] {
        return desk.finished.load(std::memory_order_acquire) >= last &&
               device_->reached(peer, desk.finished_at);
      };
      while (peer != rank() && !has_read() && desk.given_up.load() == 0 &&
             trouble_with(peer, true).empty() && clock.now() < until)
        std::this_thread::sleep_for(std::chrono::microseconds(100));
    }
  }
}

}  // namespace skein
