// Work that torch puts on a device again and again, put there as one piece.
#pragma once

#include <functional>
#include <memory>

namespace skein {

// What hundreds of small operators cost the host, again and again, is paid once: when they are
// recorded. Graphs of one maker use the same memory for what lives only while they run, so they run
// one after the other, on one queue.
class TorchGraphs {
 public:
  class Graph {
   public:
    virtual ~Graph() = default;

    // Puts the work on this thread's current stream. It reads and writes where it did when it was
    // recorded: memory that it was given must still be there.
    virtual void play() = 0;
  };

  TorchGraphs();
  TorchGraphs(const TorchGraphs&) = delete;
  TorchGraphs& operator=(const TorchGraphs&) = delete;
  ~TorchGraphs();

  // Records what `work` has torch compute on this thread's current stream (TorchOnQueue), and does
  // not do it. It must have been done before, so that libraries have what they need, and must not
  // wait for the device. Throws Error where it cannot be recorded. Only where torch has CUDA.
  std::unique_ptr<Graph> record(const std::function<void()>& work);

 private:
  struct Pool;
  std::unique_ptr<Pool> pool_;
};

}  // namespace skein
