// Where a run stands in its data.
#pragma once

#include <cstdint>
#include <memory>

#include "feed/feed.h"
#include "skein/torch_share.h"
#include "strategy/worker.h"

namespace skein {

// Knows the loop over share() that trains, the batch that the loop has handed out, and how much of
// the data was trained on before the run was resumed. For the user's thread.
class DataCursor {
 public:
  // Both must outlive this object.
  DataCursor(World& world, const Worker& worker) : world_(world), worker_(worker) {}

  // A batch of `samples` is the coming step's, until that step begins or the batch is taken back.
  void hand_out(std::int64_t samples) { handed_out_ = samples; }
  void take_back() { handed_out_ = -1; }
  bool handed_out() const { return handed_out_ >= 0; }
  std::int64_t samples_handed_out() const;  // ConfigError where there is no batch

  // A step begins: its batch is used, and loops that come later pass nothing over.
  void step_begins() { handed_out_ = -1, resumed_ = 0; }

  // Returns the number of a loop's first epoch. A loop that does not name it goes on after the
  // last.
  std::int64_t number_epochs(const ShareOptions& options);

  // Returns how many of a loop's samples were trained on before the run was resumed. A loop with a
  // first epoch comes after all epochs before that one; any other comes after the loops that were
  // passed over already.
  std::int64_t pass_over(std::int64_t dataset_size, const ShareOptions& options);

  // Begins a loop that trains on `plan` from its sample number `begin` on. There is one at a time.
  void open(const FeedPlan& plan, std::int64_t begin);
  bool in_loop() const { return in_loop_; }

  // What the loop draws from; null where nothing was left to train on. On rank 0 it serves the
  // other workers until they have ended their loops, too.
  Feed* feed() { return feed_.get(); }

  // Ends the loop of this worker. Then close(), when all workers have ended theirs, or leave(),
  // where this one failed.
  void end_loop() { handed_out_ = -1, in_loop_ = false; }
  void leave() {
    if (feed_) feed_->leave();
  }
  void close() {
    if (feed_) feed_->close();
    feed_.reset();
  }

 private:
  World& world_;
  const Worker& worker_;
  std::unique_ptr<Feed> feed_;
  bool in_loop_ = false;
  std::int64_t handed_out_ = -1;
  // Samples before the run was resumed that no loop has passed over; before the first: unknown.
  std::int64_t resumed_ = -1;
  std::int64_t next_epoch_ = 0;
  bool said_passed_over_ = false;
};

}  // namespace skein
