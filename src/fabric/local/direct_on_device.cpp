// The local fabric's collectives on memory of devices that all workers can open.
//
// The host does what it does on shared memory, and its queue follows: a worker says that it has
// come to a step when its queue has been given what leads there, and with it the count by which the
// queue will have done so; who hears it makes its own queue wait for that. So nobody waits for a
// device. Peers' memory is only read: a worker that gives up leaves nothing behind that could write
// into another's memory later.
#include "fabric/local/collective.h"
#include "kernels/kernels.h"

namespace skein {

using shm::Desk;

class LocalFabric::DeviceCollective final : public Collective {
 public:
  DeviceCollective(LocalFabric& fabric, const Operation& operation, Kind kind, Span buffer,
                   int root)
      : Collective(fabric, operation, kind, buffer, root), device_(*fabric.device_) {}
  ~DeviceCollective() {
    if (!ended_) give_up();
  }

  Task<> run_small();
  Task<> run_large();

 private:
  Task<> offer();
  Task<> meet_on_queue(std::atomic<std::uint64_t> Desk::*step, std::uint64_t Desk::*at);
  void sum_part(Span into, int owner) const;
  void take_parts(Span into) const;
  void take_part(Span into, int from, Range part) const {
    if (part.count > 0) copy(into.at(part), all_[static_cast<std::size_t>(from)].at(part));
  }
  void give_up();

  DeviceSide& device_;
  std::vector<Span> all_;  // of each rank, once offered
};

Task<> LocalFabric::DeviceCollective::offer() {
  const auto place = device_.place_of(shared_);
  if (!place) throw Error(fmt::format("{}: too much memory is shared", describe(operation_)));
  co_await Collective::offer(*place, device_.record());
  all_.resize(static_cast<std::size_t>(fabric_.size()));
  for (int rank = 0; rank < fabric_.size(); ++rank) {
    Span& offered = all_[static_cast<std::size_t>(rank)];
    offered = shared_;
    if (rank == fabric_.rank()) continue;
    device_.wait_for(rank, offer_of(rank).ready);
    offered = device_.at(rank, fabric_.named(rank), offer_of(rank).place, buffer_.type);
  }
}

Task<> LocalFabric::DeviceCollective::meet_on_queue(std::atomic<std::uint64_t> Desk::*step,
                                                    std::uint64_t Desk::*at) {
  desk(fabric_.rank()).*at = device_.record();
  co_await meet(step);
  for (int peer = 0; peer < fabric_.size(); ++peer)
    if (peer != fabric_.rank()) device_.wait_for(peer, desk(peer).*at);
}

// In the ring's order, so that the sum has the same bits as on any other fabric.
void LocalFabric::DeviceCollective::sum_part(Span into, int owner) const {
  const Range part = part_of(owner);
  if (part.count == 0) return;
  const auto size = static_cast<std::size_t>(fabric_.size());
  std::vector<Span> sources(size);
  for (std::size_t i = 1; i <= size; ++i)
    sources[i - 1] = all_[(static_cast<std::size_t>(owner) + i) % size].at(part);
  sum(into.at(part), sources);
}

void LocalFabric::DeviceCollective::take_parts(Span into) const {
  for (int i = 1; i < fabric_.size(); ++i) {
    const int peer = (fabric_.rank() + i) % fabric_.size();
    take_part(into, peer, part_of(peer));
  }
}

// With copies that stay as they are, as on the host (HostCollective::use_copy), and one meeting.
// A copy is written again by the second such collective after this one. By then the queue has
// waited for what all peers offered in the first, and their queues came to that when they had read
// this copy. Collectives on the host in between say nothing of queues: they do not count.
Task<> LocalFabric::DeviceCollective::run_small() {
  const Span copies = device_.copies(operation_.channel, kSmallOnDevice);
  const std::size_t half = fabric_.small_on_device_[operation_.channel].count++ % 2;
  const Span place = copies.at({half * kSmallOnDevice, buffer_.bytes()});
  shared_ = {place.data, buffer_.count, place.device, buffer_.type};
  if (buffer_.count > 0) copy(shared_, buffer_);
  co_await offer();
  switch (kind_) {
    case Kind::reduce_scatter:
      sum_part(buffer_, fabric_.rank());
      break;
    case Kind::all_reduce:
      for (int owner = 0; owner < fabric_.size(); ++owner) sum_part(buffer_, owner);
      break;
    case Kind::all_gather:
      take_parts(buffer_);
      break;
    case Kind::broadcast:
      if (fabric_.rank() != root_) take_part(buffer_, root_, {0, buffer_.count});
      break;
    case Kind::combine:
      break;
  }
  // Nobody waits for this but one that leaves.
  desk(fabric_.rank()).finished_at = device_.record();
  desk(fabric_.rank()).finished.store(round_, std::memory_order_release);
  fabric_.small_on_device_[operation_.channel].last = round_;
  ended_ = true;
}

// From the peers' buffers themselves, which they get back when all have read them. Only its own
// rank reads or writes a rank's part of any buffer before the sums are there.
Task<> LocalFabric::DeviceCollective::run_large() {
  shared_ = buffer_;
  if (!device_.place_of(buffer_)) {
    staged_ = device_.allocate(buffer_.count, buffer_.type);
    shared_ = staged_->span();
    copy(shared_, buffer_);
  }
  co_await offer();
  switch (kind_) {
    case Kind::reduce_scatter:
      sum_part(shared_, fabric_.rank());
      break;
    case Kind::all_reduce:
      sum_part(shared_, fabric_.rank());
      co_await meet_on_queue(&Desk::summed, &Desk::summed_at);
      take_parts(shared_);
      break;
    case Kind::all_gather:
      take_parts(shared_);
      break;
    case Kind::broadcast:
      if (fabric_.rank() != root_) take_part(shared_, root_, {0, buffer_.count});
      break;
    case Kind::combine:
      break;
  }
  co_await meet_on_queue(&Desk::finished, &Desk::finished_at);
  // One that gave up meanwhile has not waited for this worker, unless it saw that it had finished.
  for (int peer = 0; peer < fabric_.size(); ++peer)
    if (peer != fabric_.rank() && has_given_up(peer)) lost(peer);
  ended_ = true;
  if (staged_) copy(buffer_, shared_);
}

// A peer that has finished takes what it read for the result, if it does not see this first: so
// the memory is left as it is until its queue has read it. All others throw away what they read.
void LocalFabric::DeviceCollective::give_up() {
  say_that_it_is_over();
  if (!offered_ || buffer_.bytes() <= kSmallOnDevice) return;
  for (int peer = 0; peer < fabric_.size(); ++peer)
    if (peer != fabric_.rank() && desk(peer).finished.load(std::memory_order_seq_cst) >= round_)
      device_.wait_for(peer, desk(peer).finished_at);
}

Task<> LocalFabric::run_on_device(const Operation& operation, Kind kind, Span buffer, int root) {
  DeviceCollective collective(*this, operation, kind, buffer, root);
  buffer.bytes() <= Collective::kSmallOnDevice ? co_await collective.run_small()
                                               : co_await collective.run_large();
}

}  // namespace skein
