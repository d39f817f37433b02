// What a step is, in a real run and in the virtual cluster: calls a strategy in the right order,
// accounts for the time that a worker waits, and orders work on devices.
//
// Whoever has parameters and gradients in an arena, and can say "this gradient is there" and "this
// parameter is about to be read", trains with it:
//
//   Driver driver(worker, *strategy, time, program);
//   for (;;) {
//     driver.expect(samples);         // where the number is known
//     wait(driver.need(bucket));      // before forward reads it, if strategy.waits_for_reads()
//     wait(driver.begin());           // when the first gradient is there
//     driver.gradient(slot);          // for each as backward goes
//     wait(driver.end(samples));
//   }
//   wait(driver.flush());
//
// wait() runs a task on the worker's loop to its end (Courier::wait() in a real run, co_await on
// the loop itself) and then calls follow(). A task that is not awaited does nothing.
//
// One thread at a time calls a Driver. It runs no code of the program but Program's functions.
#pragma once

#include <functional>
#include <mutex>
#include <optional>
#include <vector>

#include "core/worker_time.h"
#include "strategy/program.h"
#include "strategy/step_gradients.h"
#include "strategy/strategy.h"

namespace skein {

class Driver {
 public:
  // All outlive it. `time` is the worker's trace.
  Driver(Worker& worker, Strategy& strategy, WorkerTime& time, Program& program);

  // Backward passes in each step from the coming one on; 1 at first. Between steps.
  void accumulate(int passes) { passes_ = passes; }

  // The coming step will have that many samples on this worker, or kUnknown; without it those of
  // the last step that had any. What is computed from here on is that step's. Before begin().
  void expect(std::int64_t samples);

  // Ends when forward may read the bucket's parameters.
  Task<> need(int bucket);

  // The bucket that a read of the slot must wait for, since nobody has read it since the last step;
  // -1: none. And whether there is any such bucket. Any thread.
  int unread(int slot) const;
  bool any_unread() const;

  // Backward begins, in a step of as many samples as were expected, or `samples`, if given. From
  // its end to that of end() the arena's gradients are the program's to add to. Does nothing when
  // it has begun already.
  Task<> begin(std::int64_t samples = kUnknown);
  bool begun() const { return begun_; }

  // A backward pass has added the slot's gradient to the arena. A bucket that is complete may leave
  // for the other workers now. After begin(); never waits. ConfigError: see StepGradients::add().
  void gradient(int slot);

  // For a program that counts gradients and passes itself, in place of gradient(): the bucket is
  // complete. On the loop.
  void bucket_ready(int bucket);

  // See Program::sees_touches(). The second ends the watch and says what came of it; end() does so
  // where the program does not.
  void touched(int slot) { gradients_.on_touch(slot); }
  std::optional<StepGradients::Touch> touches();

  // Backward has ended; see Strategy::end_step(). Begins a step that has no gradients and has not
  // begun. When it ends the next step may begin, and what is computed from then on is that step's.
  Task<> end(std::int64_t samples);

  // See Strategy. Between steps. After them the parameters are those to save until after_flush(),
  // which does nothing when they are not, and which expect() calls.
  Task<> flush() { return between_steps(strategy_.flush()); }
  Task<> settle() { return between_steps(strategy_.settle()); }
  void after_flush();

  // `task` works on the arena, between steps; then the parameters are those to save.
  Task<> between_steps(Task<> task);

  // Calls `work` on the loop, behind what has been computed and before what is computed next.
  void in_order(const std::function<void()>& work);

  // What is computed from now on comes after what was waited for.
  void follow();

  // What the program does from here on is the coming step's computing, but for its waits here.
  void start_computing();

  // How long the program has waited here since then.
  Duration waited() const { return waited_; }

 private:
  Task<> begin_at(Time from, Mark computed);
  Task<> need_at(Time from, int bucket);
  Task<> end_at(Time from, Mark computed, std::int64_t samples);
  Task<> after(Mark computed, Task<> task);
  void leave(int bucket);
  void arrive(const Mark& computed) const;
  void hand_over(const Mark& computed);
  void has_waited(const char* what, Time from);
  void set_unread(bool unread);
  Time now() const { return worker_.loop().now(); }

  Worker& worker_;
  Strategy& strategy_;
  WorkerTime& time_;
  Program& program_;
  StepGradients gradients_;
  Mark handed_over_;  // where the loop's queue was when what was waited for had ended

  int passes_ = 1;
  std::int64_t expected_ = kUnknown;  // samples of the coming step
  std::int64_t usual_ = kUnknown;     // of the last step that had any
  bool begun_ = false, counting_ = false;
  bool flushed_ = false;   // parameters are those to save, not those to train on
  bool settling_ = false;  // when what is waited for has ended nothing is on its way any more
  Time computing_from_{};
  Duration waited_{};

  mutable std::mutex reading_;  // of what follows
  std::vector<bool> unread_;    // buckets that nobody has read since the last step
  int unread_count_ = 0;
};

}  // namespace skein
