#include "runtime/courier.h"

#include <sched.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "core/check.h"
#include "core/queue.h"
#include "skein/error.h"

namespace skein {
namespace {

// How long a courier that has stepped back leaves it to others to call it. They do so when there is
// work on the loop; what arrives from outside meanwhile, and a fabric's heartbeat, wait no longer
// than this.
constexpr auto kLongestStepBack = std::chrono::milliseconds(100);

// How often while_waiting() is called.
constexpr auto kAskEvery = std::chrono::milliseconds(100);

// Timers of this thread fire within a microsecond of their time, not 50: emulated links rely on it.
void sharpen_timers() { ::prctl(PR_SET_TIMERSLACK, 1000UL); }

// What the system is asked for on behalf of this thread, as <linux/sched/types.h> has it, which
// cannot be included beside the C library's own.
struct SchedulingWish {
  std::uint32_t size = sizeof(SchedulingWish), policy = SCHED_OTHER;
  std::uint64_t flags = 0;
  std::int32_t nice = 0;
  std::uint32_t priority = 0;
  std::uint64_t slice_ns = 0, deadline = 0, period = 0;
};

// Computing threads hold the cores for milliseconds at a time, and a link is idle as long as the
// courier waits for one. A thread that asks for short slices gets its turn sooner (Linux 6.12 and
// later; others know no such wish), and not a larger share.
void ask_for_short_slices() {
  constexpr std::uint64_t kShortest = 100'000;
  SchedulingWish wish;
  wish.slice_ns = kShortest;
  errno = 0;
  wish.nice = ::getpriority(PRIO_PROCESS, 0);
  if (errno == 0 && ::sched_getscheduler(0) == SCHED_OTHER)
    (void)::syscall(SYS_sched_setattr, 0, &wish, 0U);
}

}  // namespace

Courier::Courier(Loop& loop, EventSource* events) : loop_(loop), events_(events) {
  sharpen_timers();
  if (events_) thread_ = std::thread([this] { run(); });
}

Courier::~Courier() {
  if (!thread_.joinable()) return;
  if (!process_.here()) {
    thread_.detach();
    return;
  }
  stop_ = true;
  wanted_ = false;
  call_back();
  events_->wake();
  thread_.join();
}

void Courier::post(std::function<void()> action) {
  if (!process_.here()) return;
  {
    const std::lock_guard lock(posted_mutex_);
    posted_.push_back(std::move(action));
    has_posted_.store(true, std::memory_order_release);
  }
  if (events_) {
    call_back();
    events_->wake();
    return;
  }
  const std::lock_guard lock(driving_);
  while (turn([] { return false; })) {
  }
}

void Courier::with_loop(const std::function<void()>& action) {
  if (!process_.here()) return;
  wanted_ = true;
  {
    const std::lock_guard lock(driving_);
    const OnQueue scope(loop_.queue());
    take_in_posted();
    action();
    wanted_ = false;
  }
  call_back();
  if (events_) events_->wake();
}

void Courier::take_in_posted() {
  if (!has_posted_.load(std::memory_order_acquire)) return;
  std::vector<std::function<void()>> posted;
  {
    const std::lock_guard lock(posted_mutex_);
    posted.swap(posted_);
    has_posted_.store(false, std::memory_order_relaxed);
  }
  const OnQueue scope(loop_.queue());
  for (auto& action : posted) action();
}

bool Courier::turn(const std::function<bool()>& enough) {
  take_in_posted();
  return loop_.run_turn(enough) > 0;
}

void Courier::sleep(std::uint32_t ticket, Time until) {
  if (events_)
    events_->wait(ticket, until);
  else
    std::this_thread::sleep_for(until - loop_.now());
}

// Asks the program, without holding the loop: the program may take its time, and may need a lock
// that another of its threads holds while that thread waits for the loop.
std::exception_ptr Courier::ask(std::unique_lock<std::mutex>& driving) {
  std::exception_ptr thrown;
  wanted_ = false;
  driving.unlock();
  call_back();
  try {
    while_waiting();
  } catch (...) {
    thrown = std::current_exception();
  }
  wanted_ = true;
  driving.lock();
  return thrown;
}

void Courier::check_home() const {
  if (!process_.here())
    throw Error(
        "this process is a child that fork() made of a worker: expected that the worker itself "
        "trains, and that children only prepare its data");
}

void Courier::wait(Task<> task) {
  check_home();
  wanted_ = true;
  std::unique_lock lock(driving_);
  Job job = loop_.spawn(std::move(task));
  std::exception_ptr failure, interrupt;
  Time ask_at = while_waiting ? loop_.now() + kAskEvery : kNever;
  for (;;) {
    const std::uint32_t ticket = events_ ? events_->poll() : 0;
    const bool ran = turn([&] { return job.done(); });
    if (job.done()) break;
    if (loop_.now() >= ask_at) {
      if ((interrupt = ask(lock))) break;
      ask_at = loop_.now() + kAskEvery;
      continue;
    }
    if (ran) continue;
    try {
      loop_.rethrow_failure();
    } catch (...) {
      failure = std::current_exception();
      break;
    }
    const auto next = loop_.next_timer();
    SKEIN_CHECK(events_ || next.has_value(), "nothing can ever end this wait");
    sleep(ticket, std::min(next.value_or(kNever), ask_at));
  }
  // The task may use memory of the caller, who leaves now.
  if (failure || interrupt) job.abandon();
  const bool more = loop_.busy();
  wanted_ = false;
  lock.unlock();
  // An idle courier sleeps on until something is posted. Otherwise it may sleep until a time that
  // it chose before this wait began.
  if (events_ && more) {
    call_back();
    events_->wake();
  }
  if (interrupt) {
    if (on_interrupt) on_interrupt(interrupt);
    std::rethrow_exception(interrupt);
  }
  try {
    if (failure) std::rethrow_exception(failure);
    job.rethrow();
  } catch (const IoError& error) {
    if (on_loss) on_loss(error.peer());
    throw;
  }
}

void Courier::step_back() {
  std::unique_lock lock(back_mutex_);
  called_back_.wait_for(lock, kLongestStepBack, [this] { return !wanted_; });
}

void Courier::call_back() {
  { const std::lock_guard lock(back_mutex_); }  // it sleeps, or has yet to look
  called_back_.notify_all();
}

void Courier::run() {
  sharpen_timers();
  ask_for_short_slices();
  while (!stop_) {
    if (wanted_) {
      step_back();
      continue;
    }
    std::unique_lock lock(driving_);
    const std::uint32_t ticket = events_->poll();
    if (turn([&] { return wanted_.load(); })) continue;
    const Time until = loop_.next_timer().value_or(kNever);
    lock.unlock();
    if (!stop_) events_->wait(ticket, until);
  }
}

}  // namespace skein
