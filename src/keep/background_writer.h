// A thread that does one job at a time while its owner goes on.
#pragma once

#include <atomic>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <string>
#include <thread>

#include "core/clock.h"

namespace skein {

// One owner, whose calls are not concurrent.
class BackgroundWriter {
 public:
  BackgroundWriter() = default;
  ~BackgroundWriter();  // ends the job first
  BackgroundWriter(const BackgroundWriter&) = delete;
  BackgroundWriter& operator=(const BackgroundWriter&) = delete;

  // Requires that no job is there: wait_for() has said so, and take_error() was called.
  void start(std::function<void()> job);

  // Whether the job has ended, for which it waits so long at most. True where there is none.
  bool wait_for(Duration longest);

  // What the job that has ended threw; empty: nothing.
  std::string take_error();

  // The run has failed: a job that waits for others may look at this, and not wait for long.
  void hurry_up() { hurry_ = true; }
  const std::atomic<bool>& hurry() const { return hurry_; }

 private:
  std::mutex mutex_;
  std::condition_variable ended_;
  bool busy_ = false;
  std::string error_;
  std::atomic<bool> hurry_ = false;
  std::thread thread_;
};

}  // namespace skein
