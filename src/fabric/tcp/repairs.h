// Sees to it that streams between workers that break are replaced while the run goes on.
//
// The worker that connected to the other does so again; both have shown that they belong to the run
// by then, and know the number that marks it. The other one looks meanwhile whether anybody listens
// where the first did: when nobody does, its process has ended, and it is lost at once. How long
// all that may take is the connection's concern (Pulse).
//
// Not thread-safe: only what drives the loop calls it.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "core/loop.h"
#include "fabric/tcp/connection.h"
#include "fabric/tcp/meeting.h"

namespace skein::tcp {

class Repairs {
 public:
  // `met` without its streams; `peers`, by rank, outlive this.
  Repairs(Loop& loop, Poller& poller, const Tls& tls, const TcpOptions& options, Met met,
          std::vector<std::unique_ptr<Connection>>& peers);
  Repairs(const Repairs&) = delete;
  Repairs& operator=(const Repairs&) = delete;

  // Begins again with all that is broken: the loop's jobs have been abandoned.
  void begin_anew();

 private:
  struct Guest {
    Hello hello;
    std::unique_ptr<Talk> talk;
  };

  void repair(int peer, std::size_t lane);
  void widen(int peer, std::size_t count);
  Task<> dial(int peer, std::size_t lane);
  Task<> attempt(int peer, std::size_t lane);
  Task<> watch(int peer, std::size_t lane);
  Task<> welcome(Guest guest);
  Task<> refuse(Guest guest, std::string why);
  std::string objection_to(const Hello& hello);
  void keep(Job job);
  Connection& connection(int peer) { return *peers_[static_cast<std::size_t>(peer)]; }
  const Address& address(int peer) const { return *met_.addresses[static_cast<std::size_t>(peer)]; }

  Loop& loop_;
  Poller& poller_;
  const Tls& tls_;
  const TcpOptions& options_;
  Met met_;
  std::vector<std::unique_ptr<Connection>>& peers_;
  std::vector<ScopedJob> jobs_;
};

}  // namespace skein::tcp
