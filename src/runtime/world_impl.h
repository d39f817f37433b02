// The inside of a World, for the layers above it.
#pragma once

#include <memory>

#include "core/clock.h"
#include "core/loop.h"
#include "fabric/fabric.h"
#include "launch/board.h"
#include "launch/environment.h"
#include "runtime/courier.h"
#include "skein/world.h"

namespace skein {

class World::Impl final : public WaitObserver {
 public:
  Impl(const JoinOptions& options, const Placement& placement);
  ~Impl() override;

  Loop& loop() { return loop_; }
  Fabric& fabric() { return *fabric_; }
  Courier& courier() { return *courier_; }
  Board& board() { return board_; }
  const JoinOptions& options() const { return options_; }
  Deadline deadline() const { return clock_.now() + options_.patience; }

  void fail(const std::string& reason, int lost_peer);

  // Channels: strategies count from 0 up, the world's own operations use the last, and a queue of
  // data blocks the one before.
  static constexpr Channel kOwnChannel = kChannels - 1;
  static constexpr Channel kQueueChannel = kChannels - 2;

  void waiting(const char* operation, int peer) override { board_.set_waiting(peer, operation); }
  void resumed() override { board_.clear_waiting(); }

 private:
  JoinOptions options_;
  SteadyClock clock_;
  Board board_;
  Loop loop_;
  std::unique_ptr<Fabric> fabric_;
  std::unique_ptr<Courier> courier_;
};

}  // namespace skein
