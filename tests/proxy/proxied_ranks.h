// The ranks of a tcp fabric as threads of a test, so that the test can act while they talk. What
// rank 1 and rank 0 say to each other passes a proxy; other ranks reach each other directly.
#pragma once

#include <functional>
#include <future>
#include <memory>
#include <string>
#include <vector>

#include "core/loop.h"
#include "fabric/fabric.h"
#include "proxy/fault_proxy.h"
#include "tcp_run.h"

namespace skein {

// How a rank ended.
struct RankEnd {
  bool ok = false;
  std::string error;
  int peer = -1;  // IoError's
  Duration took{};
};

class ProxiedRanks {
 public:
  using Body = std::function<Task<>(Fabric&)>;
  using Change = std::function<void(TcpOptions&)>;

  explicit ProxiedRanks(
      int size, Change change = [](TcpOptions&) {});

  // Runs `body` on every rank. The ends can be taken once.
  void start(const Body& body);
  std::vector<RankEnd> ends();

  FaultProxy& proxy() { return proxy_; }
  const TcpRun& run() const { return run_; }

 private:
  const int size_;
  const Change change_;
  const TcpRun run_;
  FaultProxy proxy_{run_.options(0, 2).rendezvous};
  std::vector<std::future<RankEnd>> ranks_;
};

}  // namespace skein
