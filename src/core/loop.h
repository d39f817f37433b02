// Runs coroutines: a queue of what can go on now and a heap of timers, nothing else.
//
// The order is fully determined by the order of calls and the clock, so on a virtual clock a run is
// reproducible. Not thread-safe: one thread at a time drives a loop and everything that runs on it.
#pragma once

#include <coroutine>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "core/clock.h"
#include "core/task.h"

namespace skein {

class Loop;
class Queue;
class Signal;

namespace detail {

enum class Wake : std::uint8_t { waiting, signalled, timed_out, cancelled };

// One suspended coroutine: on a signal, on a timer, or on both. Lives in the coroutine's frame.
class Waiter {
 public:
  Waiter(Loop& loop, Signal* signal, Time until, bool cancellable = true)
      : loop_(loop), signal_(signal), until_(until), cancellable_(cancellable) {}
  Waiter(const Waiter&) = delete;
  Waiter& operator=(const Waiter&) = delete;
  ~Waiter() { unlink(); }

  bool await_ready() const noexcept { return false; }
  template <typename Promise>
  bool await_suspend(std::coroutine_handle<Promise> handle) {
    return suspend(handle, handle.promise().job);
  }
  // True when signalled, false when the time came first. Throws Cancelled.
  bool await_resume();

 private:
  friend class skein::Loop;
  friend class skein::Signal;
  friend class JobState;

  bool suspend(std::coroutine_handle<> handle, JobState* job);
  void wake(Wake reason);
  void unlink();

  Loop& loop_;
  Signal* signal_;
  Time until_;
  bool cancellable_;
  bool linked_ = false;
  Wake wake_ = Wake::waiting;
  std::coroutine_handle<> handle_;
  JobState* job_ = nullptr;
  Waiter* previous_ = nullptr;
  Waiter* next_ = nullptr;
  std::uint32_t timer_ = 0;  // slot in the loop's timer table, 0 for none
};

// A coroutine that lets the others go on first: those that can now, or until none can.
class Yield {
 public:
  Yield(Loop& loop, bool until_idle) : loop_(loop), until_idle_(until_idle) {}
  bool await_ready() const noexcept { return false; }
  template <typename Promise>
  bool await_suspend(std::coroutine_handle<Promise> handle) {
    return suspend(handle, handle.promise().job);
  }
  void await_resume() const;  // throws Cancelled

 private:
  bool suspend(std::coroutine_handle<> handle, JobState* job);

  Loop& loop_;
  bool until_idle_;
  bool cancelled_ = false;
};

}  // namespace detail

// Something that happens, perhaps many times. It has no memory: who waits must check first.
class Signal {
 public:
  explicit Signal(Loop& loop) : loop_(loop) {}
  Signal(const Signal&) = delete;
  Signal& operator=(const Signal&) = delete;
  ~Signal();

  // Resumes, in order, all who wait now, at the loop's next turn.
  void notify_all();
  bool awaited() const { return first_ != nullptr; }

  // co_await: true when notified, false when `deadline` passed first.
  detail::Waiter wait(Deadline deadline = kNever) { return {loop_, this, deadline}; }

 private:
  friend class detail::Waiter;
  friend class Job;

  Loop& loop_;
  detail::Waiter* first_ = nullptr;
  detail::Waiter* last_ = nullptr;
};

// A task that runs by itself. The handle may be dropped; the job goes on.
class Job {
 public:
  Job() = default;

  bool valid() const { return state_ != nullptr; }
  bool done() const;

  // Makes the job's innermost wait throw Cancelled, now or when it next waits. No effect when done.
  void cancel();

  // Frees the coroutine where it waits, without resuming it; no effect when done. Never from inside
  // the job.
  void abandon();

  // Throws what the job threw. Requires done().
  void rethrow() const;

  // Waits for the end and rethrows what the job threw. The wait itself can be cancelled; the job
  // then goes on.
  Task<> join() const;

  // Waits for the end, whatever it is, and cannot be cancelled: for cleaning up after cancel().
  Task<> settle() const;

 private:
  friend class Loop;
  explicit Job(std::shared_ptr<detail::JobState> state) : state_(std::move(state)) {}
  std::shared_ptr<detail::JobState> state_;
};

// A job that must not outlive what it refers to: abandoned with its owner.
class ScopedJob {
 public:
  ScopedJob() = default;
  explicit ScopedJob(Job job) : job_(std::move(job)) {}
  ScopedJob(ScopedJob&& other) noexcept : job_(std::exchange(other.job_, Job())) {}
  ScopedJob& operator=(ScopedJob&& other) noexcept {
    std::swap(job_, other.job_);
    return *this;
  }
  ~ScopedJob() {
    if (job_.valid()) job_.abandon();
  }

  bool valid() const { return job_.valid(); }
  const Job& operator*() const { return job_; }
  const Job* operator->() const { return &job_; }
  Job* operator->() { return &job_; }

 private:
  Job job_;
};

class Loop {
 public:
  explicit Loop(const Clock& clock);
  Loop(const Loop&) = delete;
  Loop& operator=(const Loop&) = delete;
  ~Loop();

  // Frees all unfinished jobs where they wait, without resuming them. For the end of a run: before
  // the signals they wait for are destroyed.
  void abandon_jobs();

  const Clock& clock() const { return clock_; }
  Time now() const { return clock_.now(); }

  // Starts `task` at the loop's next turn. What it throws waits for join().
  Job spawn(Task<> task);

  // The same for a task that nobody joins: what it throws, but for Cancelled, is kept for
  // rethrow_failure().
  Job spawn_background(Task<> task);

  // Throws what the first background task to fail threw.
  void rethrow_failure() const;

  // co_await: goes on at `time`.
  detail::Waiter sleep_until(Time time) { return {*this, nullptr, time}; }
  detail::Waiter sleep_for(Duration duration) { return sleep_until(now() + duration); }

  // co_await: goes on when all that can go on now has had its turn. Long work is done in pieces
  // with this between them, so that nobody waits for the whole of it.
  detail::Yield yield() { return {*this, false}; }

  // co_await: goes on when nothing else can. For work that others are not to wait for.
  detail::Yield idle() { return {*this, true}; }

  // Where what runs on this loop puts its work on memory of a device; null, as before the first
  // call: everything is the host's. Must outlive the loop's jobs.
  void use(Queue* queue) { queue_ = queue; }
  Queue* queue() const { return queue_; }

  // Whether any job has yet to end.
  bool busy() const { return jobs_.size() > finished_jobs_; }

  // Runs until nothing can go on at the clock's present time. Returns how many resumptions there
  // were.
  std::size_t run_ready();

  // Gives what can go on now one turn, or until `enough` is true after one of them. Returns how
  // many resumptions there were.
  std::size_t run_turn(const std::function<bool()>& enough);

  // When the next timer is due, if there is one.
  std::optional<Time> next_timer();

 private:
  friend class detail::Waiter;
  friend class detail::Yield;
  friend class detail::JobState;
  friend struct detail::PromiseBase;
  friend class Signal;

  struct TimerSlot {
    detail::Waiter* waiter = nullptr;
    std::uint32_t generation = 0;
  };
  struct TimerEntry {
    Time time;
    std::uint64_t sequence;
    std::uint32_t slot, generation;
    bool operator>(const TimerEntry& other) const {
      return time != other.time ? time > other.time : sequence > other.sequence;
    }
  };

  // A coroutine that can go on, and the job it is part of.
  struct Ready {
    std::coroutine_handle<> handle;
    detail::JobState* job;
  };

  void resume_later(std::coroutine_handle<> handle, detail::JobState* job) {
    ready_.push_back({handle, job});
  }
  std::uint32_t add_timer(Time time, detail::Waiter* waiter);
  void remove_timer(std::uint32_t slot);
  bool stale(const TimerEntry& entry) const;
  void drop_stale_timers();
  void fire_timers();
  bool admit_idle();
  void resume_next();
  Job start(Task<> task, bool background);

  const Clock& clock_;
  Queue* queue_ = nullptr;
  std::deque<Ready> ready_;
  std::deque<Ready> idle_;          // go on, one after the other, whenever ready_ is empty
  std::vector<TimerEntry> timers_;  // a heap; cancelled entries stay until they surface
  std::vector<TimerSlot> timer_slots_;
  std::vector<std::uint32_t> free_timer_slots_;
  std::size_t stale_timers_ = 0;
  std::uint64_t sequence_ = 0;
  std::vector<std::shared_ptr<detail::JobState>> jobs_;
  std::size_t finished_jobs_ = 0;
  std::exception_ptr failure_;
};

// Runs all tasks at once and ends when all have ended. The first to throw cancels the rest; its
// exception is rethrown after they have ended.
Task<> all_of(Loop& loop, std::vector<Task<>> tasks);

}  // namespace skein
