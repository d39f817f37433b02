// See make_mpi.h. Collectives are those of fabric/collectives.h, on messages.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "fabric/boxed.h"
#include "fabric/mpi/back_off.h"
#include "fabric/mpi/mail.h"
#include "fabric/mpi/peer.h"

namespace skein::mpi {

class MpiFabric final : public BoxedFabric {
 public:
  // The communicator is the fabric's own from now on.
  MpiFabric(Loop& loop, MPI_Comm communicator, Duration patience, Duration longest_nap);

  // Tells the peers, of whom those that still wait for this rank get IoError, and leaves the rest
  // to the process's Session.
  ~MpiFabric() override;

  std::string name() const override { return "mpi"; }
  // A launcher of MPI ends all workers when one dies. A piece is a packet: smaller ones cost as
  // many looks at MPI, and these are what counts.
  Traits traits() const override {
    return {.survives_losses = false, .chunking = {.least = kMostOfAPacket / sizeof(float)}};
  }
  EventSource* events() override { return &back_off_; }
  void fail(const std::string& reason) override;

 private:
  MpiFabric(Loop& loop, std::unique_ptr<Mail> mail, Duration patience, Duration longest_nap);
  Peer& peer(int rank) override { return *peers_[static_cast<std::size_t>(rank)]; }
  void stir() override { back_off_.stir(); }
  bool look();

  std::unique_ptr<Mail> mail_;
  const Duration patience_;
  bool failed_ = false;
  BackOff back_off_;
  std::vector<std::unique_ptr<Peer>> peers_;  // none of the own rank
  std::function<bool(const Arrived&)> take_;
};

}  // namespace skein::mpi
