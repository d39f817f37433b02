// The inside of a World, for the layers above it.
#pragma once

#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "core/clock.h"
#include "core/home_process.h"
#include "core/loop.h"
#include "core/queue.h"
#include "fabric/fabric.h"
#include "launch/environment.h"
#include "observe/board.h"
#include "runtime/calls.h"
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
  void set_patience(Duration patience) {
    options_.patience = patience;
    calls_->set_patience(patience);
  }
  Limit limit() const { return Limit::silence(options_.patience); }
  Deadline deadline() const { return clock_.now() + options_.patience; }

  // Tells the others why this worker is about to end. From then on failed() says so.
  void fail(const std::string& reason, int lost_peer);
  void fail(const std::exception& error);
  const std::string& failed() const { return failed_; }

  // False in a child that fork() made of this worker.
  bool here() const { return process_.here(); }

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
  void tolerate_losses() { calls_->tolerate_losses(); }

  // Takes the mean of `values` over the workers (the living ones, where losses are tolerated), in
  // place.
  void mean(Span values);

  // Every worker's `text`, of whatever length.
  std::vector<std::string> gather_text(const std::string& text) {
    return calls_->gather_text("texts of all workers", text);
  }

  // Who took part in the last of these, by rank; all, where losses are not tolerated.
  const std::vector<bool>& present() const { return calls_->present(); }

  // See World. Throws like check_company().
  int leader() const;

  // See World.
  void once(const std::string& call, const std::function<void()>& body);

  // Throws on all workers if one has failed: ConfigError where that was one, else Error. `own` is
  // what this worker caught, or null. All workers make the same `call`.
  void agree_on_success(const std::string& call, const std::exception_ptr& own);

  // See Calls.
  void check_company() const { calls_->check_company(); }
  Calls& calls() { return *calls_; }
  static constexpr Channel kOwnChannel = Calls::kOwnChannel;

  void waiting(const char* operation, int peer) override { board_.set_waiting(peer, operation); }
  void resumed() override { board_.clear_waiting(); }

 private:
  JoinOptions options_;
  int exceptions_ = std::uncaught_exceptions();  // that were on their way before
  std::string failed_;                           // why, once the others have been told
  HomeProcess process_;
  SteadyClock clock_;
  Board board_;
  std::unique_ptr<Queue> queue_;  // the loop's, on a device
  Loop loop_;
  std::unique_ptr<Fabric> fabric_;
  std::unique_ptr<Courier> courier_;
  std::unique_ptr<Calls> calls_;
};

}  // namespace skein
