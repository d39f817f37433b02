// Small virtual clusters, and what their workers do in a test.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "sim/cluster.h"
#include "skein/error.h"

namespace skein::sim {

inline constexpr double kByteAtNanosecond = 1e9;  // a bandwidth with which times come out whole

inline Network plain_network(double bytes_per_second, Duration latency) {
  Network network;
  network.bytes_per_second = bytes_per_second;
  network.latency = latency;
  network.chunk_bytes = 0;
  return network;
}

// Elements that have a size and no values.
inline Span absent(std::size_t count) { return {nullptr, count, Device::absent}; }
inline Span absent_bytes(std::size_t bytes) { return absent(bytes / sizeof(float)); }

inline Engine::End run_until_idle(Cluster& cluster) {
  return cluster.engine().run([] { return false; }, {});
}

// How and when a task ended.
struct Ending {
  bool done = false;
  Duration at{};
  std::string error;  // of an IoError
  int peer = -1;
};

// `ending` outlives the task.
inline Task<> watched(Cluster& cluster, Task<> task, Ending& ending) {
  try {
    co_await task;
  } catch (const IoError& error) {
    ending.error = error.what();
    ending.peer = error.peer();
  }
  ending.done = true;
  ending.at = cluster.engine().now() - Time();
}

inline Task<> after(Loop& loop, Duration pause, Task<> task) {
  co_await loop.sleep_for(pause);
  co_await task;
}

inline Task<> send_bytes(Fabric& fabric, int peer, std::size_t bytes, Channel channel = 0,
                         Deadline deadline = kNever) {
  co_await fabric.send(channel, peer, absent_bytes(bytes), deadline);
}

inline Task<> receive_bytes(Fabric& fabric, int peer, std::size_t bytes, Channel channel = 0,
                            Deadline deadline = kNever) {
  co_await fabric.receive(channel, peer, absent_bytes(bytes), deadline);
}

// Sends `bytes` from one rank to another from `begin` on; `arrived` says how it was received.
struct Transfer {
  int from, to;
  std::size_t bytes;
  Duration begin{};
  Channel channel = 0;
  Ending arrived{}, sent{};
};

inline void start(Cluster& cluster, Transfer& transfer) {
  Fabric& from = cluster.fabric(transfer.from);
  Fabric& to = cluster.fabric(transfer.to);
  cluster.spawn(transfer.from,
                watched(cluster,
                        after(cluster.loop(transfer.from), transfer.begin,
                              send_bytes(from, transfer.to, transfer.bytes, transfer.channel)),
                        transfer.sent));
  cluster.spawn(transfer.to,
                watched(cluster, receive_bytes(to, transfer.from, transfer.bytes, transfer.channel),
                        transfer.arrived));
}

inline void run_transfers(Cluster& cluster, std::vector<Transfer>& transfers) {
  for (Transfer& transfer : transfers) start(cluster, transfer);
  run_until_idle(cluster);
  for (const Transfer& transfer : transfers) ASSERT_TRUE(transfer.arrived.done);
}

}  // namespace skein::sim
