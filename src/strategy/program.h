// What a Driver asks of the program that trains with it.
#pragma once

#include <functional>

#include "core/queue.h"

namespace skein {

// The defaults are right for a program that computes on the host, runs on the loop itself and
// trains all parameters. They are called on the thread that calls the Driver; sums_begin() and
// sums_end() on the loop's, and watch_gradients(false) on that of a touch.
class Program {
 public:
  virtual ~Program() = default;

  // A mark behind what the calling thread has computed so far; null on the host.
  virtual Mark record() { return nullptr; }

  // What the calling thread computes from now on comes after `mark`.
  virtual void wait(const Mark& /*mark*/) {}

  // Runs `action` on the loop: soon, without waiting for it; and at once, while nothing else runs
  // there.
  // NOLINTNEXTLINE(performance-unnecessary-value-param): overrides keep it
  virtual void post(std::function<void()> action) { action(); }
  virtual void with_loop(const std::function<void()>& action) { action(); }

  // Whether a gradient is to come for the slot in the step that begins.
  virtual bool expects_gradient(int /*slot*/) const { return true; }

  // Whether the program says by Driver::touched() who reads or writes gradients. If so it does from
  // watch_gradients(true) on, and need not after watch_gradients(false).
  virtual bool sees_touches() const { return false; }
  virtual void watch_gradients(bool /*on*/) {}

  // False where other memory has taken the place of the slot's gradient in the arena.
  virtual bool gradient_is_in_place(int /*slot*/) const { return true; }

  // On the loop: what is put on its queue from here on belongs to a step's sums and update; and the
  // last of it has been put there. The first may come several times in a step.
  virtual void sums_begin() {}
  virtual void sums_end() {}
};

}  // namespace skein
