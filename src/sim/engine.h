// Virtual time: everything that happens on a virtual cluster, in one order that the seed fixes.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <limits>
#include <memory>
#include <vector>

#include "core/clock.h"
#include "core/loop.h"

namespace skein::sim {

// Runs the loops of all workers on one thread and one clock, which jumps from event to event.
// Events of one instant happen in the order in which they were scheduled; then the loops that have
// something to do run, in the order in which they were woken. Not thread-safe.
class Engine {
 public:
  // What an event is for. `token` is whatever was given when it was scheduled.
  class Handler {
   public:
    virtual ~Handler() = default;
    virtual void happen(std::uint64_t token) = 0;
    // The instant is over: time is about to go on.
    virtual void settle() {}
  };

  // What the loops do with memory of a device they put on `queue`, which outlives this; null: all
  // of it is the host's. So everything is done in the order in which it happens.
  explicit Engine(Queue* queue = nullptr);
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;
  ~Engine();

  const Clock& clock() const { return clock_; }
  Time now() const { return clock_.now(); }

  Queue* queue() const { return device_queue_; }

  // One loop per worker, numbered from 0.
  int add_loop();
  Loop& loop(int index) { return *lanes_[static_cast<std::size_t>(index)]->loop; }

  // Calls handler.happen(token) at `time`, which is not in the past.
  void schedule(Time time, Handler& handler, std::uint64_t token);
  void schedule(Time time, std::function<void()> action);

  // The handler wants settle() at the end of this instant.
  void settle_later(Handler& handler);

  // The loop has something to do: it runs before time goes on. To be called by whoever notifies a
  // signal of the loop, or spawns on it, from outside of it.
  void wake(int index);

  // A loop that is paused keeps what arrives and runs, late, when it is resumed. One that was
  // stopped never runs again and its jobs are gone.
  void pause(int index);
  void resume(int index);
  void stop(int index);
  // A stopped loop starts anew, empty. What referred to the old one must be gone.
  void restart(int index);

  struct Limits {
    Time until = kNever;
    std::uint64_t events = std::numeric_limits<std::uint64_t>::max();
  };
  enum class End : std::uint8_t { idle, time, events, condition };

  // Runs until `done()` holds at the end of an instant, nothing is left to happen, or a limit.
  End run(const std::function<bool()>& done, const Limits& limits);

  // What has happened so far: timers, network events, resumed coroutines.
  std::uint64_t events() const { return events_; }

  // Adds what happened to the hash over the whole run. Whoever makes things happen calls it.
  void record(std::uint64_t what, std::uint64_t a = 0, std::uint64_t b = 0) {
    mix(static_cast<std::uint64_t>(now().time_since_epoch().count()));
    mix(what);
    mix(a);
    mix(b);
  }
  std::uint64_t hash() const { return hash_; }

 private:
  struct Event {
    Time time;
    std::uint64_t sequence;
    Handler* handler;
    std::uint64_t token;
    bool operator>(const Event& other) const {
      return time != other.time ? time > other.time : sequence > other.sequence;
    }
  };
  struct Lane {
    std::unique_ptr<Loop> loop;
    std::vector<Time> timers;  // of events that are scheduled for the loop's timers, earliest last
    bool woken = false, paused = false, stopped = false;
  };
  class LoopTimers;
  class Actions;

  Lane& lane(int index) { return *lanes_[static_cast<std::size_t>(index)]; }
  std::unique_ptr<Loop> make_loop() const;
  void run_loops();
  void schedule_timer(int index);
  void mix(std::uint64_t value) {
    hash_ ^= value + 0x9e3779b97f4a7c15u;
    hash_ *= 0xff51afd7ed558ccdu;
    hash_ ^= hash_ >> 32;
  }

  ManualClock clock_;
  Queue* device_queue_;
  std::vector<std::unique_ptr<Lane>> lanes_;
  std::vector<Event> queue_;  // a heap
  std::deque<int> woken_;
  std::vector<Handler*> settling_;
  std::unique_ptr<LoopTimers> loop_timers_;
  std::unique_ptr<Actions> actions_;
  std::uint64_t sequence_ = 0;
  std::uint64_t events_ = 0;
  std::uint64_t hash_ = 0xcbf29ce484222325u;
};

}  // namespace skein::sim
