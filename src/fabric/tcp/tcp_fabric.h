// See tcp.h. Collectives are those of fabric/collectives.h, on messages.
#pragma once

#include <memory>
#include <vector>

#include "fabric/tcp/connection.h"
#include "fabric/tcp/poller.h"
#include "fabric/tcp/repairs.h"
#include "fabric/tcp/tcp.h"

namespace skein::tcp {

class TcpFabric final : public Fabric {
 public:
  TcpFabric(Loop& loop, const TcpOptions& options);
  ~TcpFabric() override;  // peers that still wait for this rank get IoError

  std::string name() const override { return "tcp"; }
  int rank() const override { return options_.rank; }
  int size() const override { return options_.size; }
  EventSource* events() override { return &poller_; }
  void fail(const std::string& reason) override;
  void progressed() override { signs_.progressed(); }
  Time latest_sign() const override { return signs_.last(); }
  void pass_on(Time sign) override { signs_.pass_on(sign); }

 protected:
  std::unique_ptr<Line> open_line(int peer, Channel channel, bool outgoing) override;
  bool try_post(const Operation& operation, Line& line, Span data) override;
  Task<> wait_for_room(const Operation& operation, Line& line) override;
  bool all_taken(Line& line) override;
  Task<> wait_until_taken(const Operation& operation, Line& line, std::uint64_t messages) override;
  Task<> take(const Operation& operation, Line& line, Span into, Combine combine) override;
  void close_line(Line& line) override;

 private:
  struct OutLine;
  struct InLine;
  class Posted;
  class Keeping;
  class Waiting;

  Connection& connection(int peer) { return *peers_[static_cast<std::size_t>(peer)]; }

  void beat();

  // What another rank than `peer` says that it failed of, to be added to an error about `peer`.
  std::string failure_besides(int peer);

  // Waits until `reached()`, which `peer` brings about and `moved` tells of. It never will if
  // `given_up()`.
  template <typename Reached, typename GivenUp>
  Task<> wait_for(const Operation& operation, int peer, Signal& moved, Reached reached,
                  GivenUp given_up);

  TcpOptions options_;
  Tls tls_;
  Poller poller_;
  Signs signs_;
  std::vector<std::unique_ptr<Connection>> peers_;  // none of the own rank
  std::unique_ptr<Repairs> repairs_;
};

}  // namespace skein::tcp
