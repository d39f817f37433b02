// See make_mpi.h. Collectives are those of fabric/collectives.h, on messages.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "fabric/fabric.h"
#include "fabric/mpi/back_off.h"
#include "fabric/mpi/mail.h"
#include "fabric/mpi/peer.h"
#include "fabric/signs.h"

namespace skein::mpi {

class MpiFabric final : public Fabric {
 public:
  // The communicator is the fabric's own from now on.
  MpiFabric(Loop& loop, MPI_Comm communicator, Duration patience, Duration longest_nap);

  // Tells the peers, of whom those that still wait for this rank get IoError, and leaves the rest
  // to the process's Session.
  ~MpiFabric() override;

  std::string name() const override { return "mpi"; }
  int rank() const override { return rank_; }
  int size() const override { return size_; }
  // A launcher of MPI ends all workers when one dies.
  Traits traits() const override { return {.survives_losses = false}; }
  // A piece is a packet: smaller ones cost as many looks at MPI, and these are what counts.
  Chunking chunking() const override { return {.least = kMostOfAPacket / sizeof(float)}; }
  EventSource* events() override { return &back_off_; }
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

  Peer& peer(int rank) { return *peers_[static_cast<std::size_t>(rank)]; }
  bool look();

  // What another rank than `peer` says that it failed of, to be added to an error about `peer`.
  std::string failure_besides(int peer);

  // Waits until `reached()`, which `peer` brings about and `moved` tells of. It never will if
  // `given_up()`.
  template <typename Reached, typename GivenUp>
  Task<> wait_for(const Operation& operation, int peer, Signal& moved, Reached reached,
                  GivenUp given_up);

  std::unique_ptr<Mail> mail_;
  const int rank_, size_;
  const Duration patience_;
  bool failed_ = false;
  Signs signs_;
  BackOff back_off_;
  std::vector<std::unique_ptr<Peer>> peers_;  // none of the own rank
  std::function<bool(const Arrived&)> take_;
};

}  // namespace skein::mpi
