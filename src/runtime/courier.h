// Runs a worker's loop on real time: the thread that carries messages while the user's thread
// computes.
//
// One thread at a time drives the loop. It is the courier's own while the user's thread computes,
// and the user's own while that waits: whoever waits carries, so that no wake-up of another thread
// stands between the last message and the waiting user. It carries until what it waits for is there
// and leaves the rest to the courier. Without an event source (a world of one)
// there is no thread at all and everything runs in the caller's.
//
// The courier's own thread runs no code of the program: what the program is asked (before_update(),
// on_record(), on_wait) is asked on the thread that waits. So a binding to a language with a lock
// of its own may hold that lock on any thread but while it waits.
//
// In a child that fork() made, every function does nothing, but wait(), which throws Error.
#pragma once

#include <atomic>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

#include "core/event_source.h"
#include "core/home_process.h"
#include "core/loop.h"

namespace skein {

class Courier {
 public:
  Courier(Loop& loop, EventSource* events);
  Courier(const Courier&) = delete;
  Courier& operator=(const Courier&) = delete;
  ~Courier();  // stops the thread; jobs stay where they are. Not in a child.

  // Runs `action` on the loop soon and does not wait for it. `action` must not throw or block. Any
  // thread.
  void post(std::function<void()> action);

  // Runs `action` at once, while nobody else drives the loop. Any thread, never from inside the
  // loop.
  void with_loop(const std::function<void()>& action);

  // Is told of every IoError that wait() throws, with the lost peer. Set before the first wait.
  std::function<void(int peer)> on_loss;

  // Called about every 100 ms on the thread that is in wait(), which does not hold the loop then.
  // wait() throws what it throws, after it has told on_interrupt(); `task` is then abandoned. Empty
  // for nothing. Both are set by the thread that waits.
  std::function<void()> while_waiting;
  std::function<void(const std::exception_ptr& why)> on_interrupt;

  // Runs `task` to its end and returns or throws what it does. Also throws what a background task
  // or while_waiting() threw; `task` is then abandoned, and uses nothing of the caller's any more.
  // One thread at a time; never from inside the loop.
  void wait(Task<> task);

  // Throws Error in a child that fork() made.
  void check_home() const;

 private:
  void run();
  void step_back();
  void call_back();
  void take_in_posted();
  void sleep(std::uint32_t ticket, Time until);
  std::exception_ptr ask(std::unique_lock<std::mutex>& driving);
  // One turn of the loop, or less when it is `enough`; returns whether anything ran.
  bool turn(const std::function<bool()>& enough);

  Loop& loop_;
  EventSource* events_;
  HomeProcess process_;
  std::mutex driving_;               // held by whoever drives the loop
  std::atomic<bool> wanted_{false};  // the user's thread waits: the courier steps back
  std::mutex back_mutex_;
  std::condition_variable called_back_;  // when nobody wants the loop any more
  std::atomic<bool> stop_{false};
  std::mutex posted_mutex_;
  std::vector<std::function<void()>> posted_;
  std::atomic<bool> has_posted_{false};
  std::thread thread_;
};

}  // namespace skein
