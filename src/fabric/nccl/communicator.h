// NCCL's communicator among the ranks of a fabric, which never keeps a thread of ours waiting.
//
// All its calls are made by the thread that drives the loop, but for the abort of one, which may
// hang: a thread of its own does that, and is left behind if it does.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <string>

#include "core/clock.h"
#include "fabric/nccl/api.h"

namespace skein::nccl {

class Communicator {
 public:
  // Begins to join the ranks; state() says when that has ended. Throws Error that says what NCCL
  // says.
  Communicator(const Api& api, Queue& queue, int ranks, const UniqueId& id, int rank);
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  // Ends what is under way, within a few seconds, by force if need be.
  ~Communicator();

  Queue& queue() const { return queue_; }

  // Calls `put`, whose operations NCCL makes one of. Throws Error when it refuses. What was put is
  // on the queue when state() is no longer in_progress, and nothing else may be put until then.
  void group(const std::function<void(Comm, Stream)>& put);

  // Throws Error when one of the operations put by group() was refused.
  void check(Result result, const char* what) const;

  // In progress, or well; anything else is an error, which what_is_wrong() has words for.
  Result state() const;
  std::string what_is_wrong(Result result) const;

  // Ends all that is under way on this rank, whatever the others do. Returns at once.
  void abort();
  bool aborted() const { return abort_ != nullptr; }

  // Whether that has come to its end.
  bool abort_has_ended() const { return abort_ && abort_->ended.load(std::memory_order_acquire); }

 private:
  struct Abort {
    std::atomic<bool> ended{false};
  };

  // Whether `holds` does so within `patience`; blocks.
  static bool within(Duration patience, const std::function<bool()>& holds);
  void end_well();

  const Api& api_;
  Queue& queue_;
  Comm comm_ = nullptr;
  std::shared_ptr<Abort> abort_;
};

}  // namespace skein::nccl
