// Work on memory that this process cannot touch: a device does it later, in order.
//
// Whatever is put on a queue is done after all that was put there before. What has been put there
// is not done yet: who must know that it is waits for a mark. On the host there are no queues, and
// everything is done at once.
#pragma once

#include <memory>

#include "core/arena.h"
#include "core/loop.h"

namespace skein {

class DeviceKernels;  // kernels/device_kernels.h
class Sharing;        // core/sharing.h

// A place in a queue. Reached when all that was put there before it is done.
class Event {
 public:
  virtual ~Event() = default;
  virtual bool reached() const = 0;  // thread-safe
};

// Null: there is nothing to wait for.
using Mark = std::shared_ptr<const Event>;

inline bool reached(const Mark& mark) { return !mark || mark->reached(); }

// The same in this loop's time. On a clock that stands still work on the loop's queue takes none:
// so a mark is reached whenever somebody asks, and the thread waits for the device.
bool reached(Loop& loop, const Mark& mark);

// Ends when the mark is reached, without keeping the loop, or a core, busy.
Task<> until_reached(Loop& loop, Mark mark);

// One thread at a time puts work on a queue.
class Queue {
 public:
  virtual ~Queue() = default;

  virtual Device device() const = 0;
  virtual DeviceKernels& kernels() = 0;

  // A mark behind all that has been put on the queue so far.
  virtual Mark record() = 0;

  // What is put on the queue from now on is done when `mark`, of any queue, is reached. Does not
  // wait itself.
  virtual void wait(const Mark& mark) = 0;

  // Blocks until all that was put on the queue is done.
  virtual void finish() = 0;

  // Memory of the device, zeroed in the order of the queue. It is given back in that order too:
  // when it is destroyed, what was put there before still finds it.
  virtual std::unique_ptr<Memory> allocate(std::size_t count, Type type) = 0;

  // Memory of the host that copies to and from the device are fast with; its contents are
  // undefined. It may be destroyed when no work on the queue uses it any more. Any thread.
  virtual std::unique_ptr<Memory> allocate_on_host(std::size_t count, Type type) {
    return allocate_on_heap_of(type, count);
  }

  // What other processes of the host can do with memory of this device; null: nothing.
  virtual Sharing* sharing() { return nullptr; }
};

// Where kernels on memory of a device go that this thread calls: null where it has none.
Queue* current_queue();

// Makes `queue` this thread's for as long as it lives.
class OnQueue {
 public:
  explicit OnQueue(Queue* queue);
  OnQueue(const OnQueue&) = delete;
  OnQueue& operator=(const OnQueue&) = delete;
  ~OnQueue();

 private:
  Queue* before_;
};

// Zeroed memory of the queue's device, of the host where there is none.
Allocate allocator_of(Queue* queue);

// The present end of what `queue` has to do; null where there is no queue.
inline Mark record(Queue* queue) { return queue ? queue->record() : nullptr; }

// A number that work on a queue leaves behind.
class Figure {
 public:
  Figure(double value) : value_(value) {}
  Figure(std::shared_ptr<const double> later, Mark mark)
      : later_(std::move(later)), mark_(std::move(mark)) {}

  const Mark& mark() const { return mark_; }

  // Aborts before its mark is reached.
  operator double() const {
    SKEIN_CHECK(reached(mark_), "a number is read before it is there");
    return later_ ? *later_ : value_;
  }

 private:
  double value_ = 0;
  std::shared_ptr<const double> later_;
  Mark mark_;
};

inline Task<double> value_of(Loop& loop, Figure figure) {
  co_await until_reached(loop, figure.mark());
  co_return figure;
}

}  // namespace skein
