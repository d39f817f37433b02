// See tcp.h. Collectives are those of fabric/collectives.h, on messages.
#pragma once

#include <memory>
#include <vector>

#include "fabric/boxed.h"
#include "fabric/tcp/connection.h"
#include "fabric/tcp/poller.h"
#include "fabric/tcp/repairs.h"
#include "fabric/tcp/tcp.h"

namespace skein::tcp {

class TcpFabric final : public BoxedFabric {
 public:
  TcpFabric(Loop& loop, const TcpOptions& options);
  ~TcpFabric() override;  // peers that still wait for this rank get IoError

  std::string name() const override { return "tcp"; }
  EventSource* events() override { return &poller_; }

 private:
  Connection& peer(int rank) override { return *peers_[static_cast<std::size_t>(rank)]; }
  void beat();

  TcpOptions options_;
  Tls tls_;
  Poller poller_;
  std::vector<std::unique_ptr<Connection>> peers_;  // none of the own rank
  std::unique_ptr<Repairs> repairs_;
};

}  // namespace skein::tcp
