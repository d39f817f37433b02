// What a worker of one host knows of another. Only the local fabric includes this.
#pragma once

#include <fmt/format.h>

#include <memory>

#include "fabric/local/local_fabric.h"
#include "fabric/wait_end.h"
#include "skein/error.h"

namespace skein {

struct LocalFabric::PeerState {
  std::unique_ptr<shm::PeerSegment> segment;  // none of the own rank
  int pid = 0;
  FileDescriptor process;
  FileDescriptor bell;  // what it sleeps on, with others
  bool dead = false;
  std::int64_t sign_ns = 0;  // its latest sign of progress
  Time heard{};              // and when this worker saw it
};

// The mailbox lies in the sender's file.
struct LocalFabric::LocalLine final : Line {
  LocalLine(LocalFabric& carrier, int mate, Channel its_channel, bool sends, shm::Mailbox& its_box)
      : Line(carrier, carrier.named(mate), its_channel, sends), index(mate), box(its_box) {}
  const int index;  // of the peer, among those of this host
  shm::Mailbox& box;
};

template <typename Reached, typename GivenUp>
Task<> LocalFabric::wait_for(const Operation& operation, int peer, Reached reached,
                             GivenUp given_up) {
  if (reached() || doorbell_.briefly(reached)) co_return;
  if (observer()) observer()->waiting(operation.name, named(peer));
  const Time begin = loop().now();
  WaitEnd wait_end(operation.limit, begin);
  Time looked = begin;
  for (;;) {
    // A system call is too much for every wait; the bell rings at least this often.
    const Time now = loop().now();
    const bool look = now - looked >= shm::Doorbell::kLookAround;
    if (look) looked = now;
    const std::string trouble = trouble_with(peer, look);
    const bool vain = given_up();
    if (reached()) break;  // also if that was its last act
    if (!trouble.empty() && device_) device_->let_go_of_the_dead();
    if (!trouble.empty())
      throw IoError(
          fmt::format("{} waits for rank {}, {}", describe(operation), named(peer), trouble),
          named(peer));
    if (vain)
      throw IoError(fmt::format("{}: rank {} has given it up{}", describe(operation), named(peer),
                                failure_besides(peer)),
                    named(peer));
    const Time end = wait_end.at(now, last_sign(peer));
    if (now >= end) throw TooLate(operation, named(peer));
    co_await doorbell_.bell().wait(end);
    if (reached()) break;
  }
  if (observer()) observer()->resumed();
}

}  // namespace skein
