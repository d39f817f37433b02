// The inside of a World, for the layers above it.
#pragma once

#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "core/clock.h"
#include "core/loop.h"
#include "core/queue.h"
#include "fabric/fabric.h"
#include "fabric/survivors.h"
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
  void set_patience(Duration patience) { options_.patience = patience; }
  Limit limit() const { return Limit::silence(options_.patience); }
  Deadline deadline() const { return clock_.now() + options_.patience; }

  void fail(const std::string& reason, int lost_peer);

  // The loop's work on memory of a device goes to a queue of that device from now on; on the host
  // there is none. One device for a world: ConfigError for a second one.
  void use_device(Device device);

  // Before the first operation on memory of the device: all workers find out how they reach each
  // other's (Fabric::meet_on_device).
  void meet_on_device() { courier_->wait(fabric_->meet_on_device(limit())); }

  // Throws ConfigError where the fabric is for devices alone, and there is none.
  void do_without_device() const;

  // Calls `work` while nothing else touches the loop, then waits until what it put on the loop's
  // queue is done.
  void finish(const std::function<void()>& work);

  // From now on sums and barriers are of the workers that live, and do not fail when one is lost.
  // All workers call it at the same place.
  void tolerate_losses();

  // Adds up `values`, or takes their mean, over the workers (the living ones, where losses are
  // tolerated), in place.
  void sum(Span values);
  void mean(Span values);

  // Waits for all of them.
  void meet();

  // Every worker's `bytes`, by rank; none of a worker that took no part. All pass the same number.
  std::vector<std::vector<std::byte>> gather(std::span<const std::byte> bytes);

  // Every worker's `text`, of whatever length.
  std::vector<std::string> gather_text(const std::string& text);

  // Who took part in the last of these, by rank; all, where losses are not tolerated.
  const std::vector<bool>& present() const { return present_; }

  // The lowest of them: the one that speaks and writes files for all. Throws like check_company().
  int leader() const;

  // The leader runs `write`; when this returns it has, or has been lost and the next has.
  void write_once(const std::function<void()>& write);

  // Throws IoError when losses are tolerated and the others have gone on without this worker, which
  // was away too long: it must not write what they have written, or will.
  void check_company() const;

  // Channels of the first block: the world's own operations, a queue of data blocks, and sums over
  // those who live. Each worker that is made has a block of its own.
  enum : Channel { kOwnChannel, kQueueChannel, kUpChannel, kDownChannel };

  void waiting(const char* operation, int peer) override { board_.set_waiting(peer, operation); }
  void resumed() override { board_.clear_waiting(); }

 private:
  void combine(Span record, const Merge& merge);

  JoinOptions options_;
  int exceptions_ = std::uncaught_exceptions();  // that were on their way before
  bool failed_ = false;                          // and the others have been told why
  SteadyClock clock_;
  Board board_;
  std::unique_ptr<Queue> queue_;  // the loop's, on a device
  Loop loop_;
  std::unique_ptr<Fabric> fabric_;
  std::unique_ptr<Courier> courier_;
  std::unique_ptr<Survivors> survivors_;  // where losses are tolerated
  std::vector<bool> present_;
};

}  // namespace skein
