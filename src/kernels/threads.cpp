#include "kernels/threads.h"

#include <sched.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <mutex>
#include <thread>

#include "core/check.h"

namespace skein {
namespace {

void run_alone(std::size_t count, const detail::Pieces& pieces) {
  for (std::size_t piece = 0; piece < count; ++piece) pieces.work_on(piece);
}

// Threads that sleep until there is a pass to help with. They take pieces as they come, so one that
// is not scheduled delays nobody. After a fork they are the parent's, and so is the lock, which one
// of them may have held.
class Helpers {
 public:
  pid_t process() const { return process_; }

  // At least so many. Signals are for the program's own threads.
  void grow_to(int count) {
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    for (; threads_ < count; ++threads_) std::thread([this] { serve(); }).detach();
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
  }

  // With at most `most` of them.
  void run(std::size_t count, const detail::Pieces& pieces, int most) {
    std::unique_lock lock(mutex_);
    if (pieces_ != nullptr) {
      lock.unlock();
      return run_alone(count, pieces);
    }
    pieces_ = &pieces;
    next_ = 0;
    count_ = unfinished_ = count;
    wanted_ = most;
    posted_.notify_all();
    take_pieces(lock);
    finished_.wait(lock, [this] { return unfinished_ == 0; });
    pieces_ = nullptr;
  }

 private:
  void serve() {
    std::unique_lock lock(mutex_);
    for (;;) {
      posted_.wait(lock, [this] { return pieces_ != nullptr && wanted_ > 0 && next_ < count_; });
      --wanted_;
      take_pieces(lock);
      if (unfinished_ == 0) finished_.notify_one();
    }
  }

  void take_pieces(std::unique_lock<std::mutex>& lock) {
    while (next_ < count_) {
      const std::size_t piece = next_++;
      const detail::Pieces& pieces = *pieces_;
      lock.unlock();
      pieces.work_on(piece);
      lock.lock();
      --unfinished_;
    }
  }

  const pid_t process_ = ::getpid();
  int threads_ = 0;
  std::mutex mutex_;
  std::condition_variable posted_, finished_;
  const detail::Pieces* pieces_ = nullptr;  // of the pass under way
  std::size_t next_ = 0, count_ = 0, unfinished_ = 0;
  int wanted_ = 0;  // helpers that may still join it
};

struct Setting {
  std::mutex mutex;
  std::atomic<int> threads{1};
  std::atomic<Helpers*> helpers{nullptr};
};

Setting& setting() {
  static constinit Setting the_one;
  return the_one;
}

}  // namespace

void set_kernel_threads(int count) {
  SKEIN_CHECK(count >= 1, "{} threads for a pass", count);
  Setting& now = setting();
  const std::lock_guard lock(now.mutex);
  Helpers* helpers = now.helpers.load();
  // Never destroyed: a pass may be using them, and they sleep there when the process ends.
  if (count > 1 && (helpers == nullptr || helpers->process() != ::getpid()))
    now.helpers.store(helpers = new Helpers);
  if (count > 1) helpers->grow_to(count - 1);
  now.threads.store(count);
}

int kernel_threads() { return setting().threads.load(std::memory_order_acquire); }

int share_of_cores(int workers) {
  cpu_set_t set;
  const int cores = ::sched_getaffinity(0, sizeof(set), &set) == 0
                        ? CPU_COUNT(&set)
                        : static_cast<int>(std::thread::hardware_concurrency());
  return std::max(1, cores / std::max(1, workers));
}

void detail::run_on_threads(std::size_t count, const Pieces& pieces) {
  Setting& now = setting();
  Helpers& helpers = *now.helpers.load();
  if (helpers.process() == ::getpid())
    helpers.run(count, pieces, now.threads.load() - 1);
  else
    run_alone(count, pieces);
}

}  // namespace skein
