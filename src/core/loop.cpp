#include "core/loop.h"

#include "core/queue.h"

#include <algorithm>
#include <functional>

#include "core/job_state.h"
#include "skein/error.h"

namespace skein {
namespace detail {

void PromiseBase::finished() noexcept {
  if (started_inline) return;  // the awaiter finds us done
  if (awaiter)
    job->loop.resume_later(awaiter, job);
  else
    job->root_finished();
}

void JobState::root_finished() noexcept {
  finished = true;
  ++loop.finished_jobs_;
  const auto& error = task.handle().promise().error;
  if (background && error && !loop.failure_) {
    try {
      std::rethrow_exception(error);
    } catch (const Cancelled&) {
    } catch (...) {
      loop.failure_ = error;
    }
  }
  ended.notify_all();
}

void JobState::abandon() {
  if (finished) return;
  finished = true;
  ++loop.finished_jobs_;
  task = Task<>();
  // Also what was woken by an object that went with the coroutine.
  for (auto* queue : {&loop.ready_, &loop.idle_})
    for (auto& each : *queue)
      if (each.job == this) each.handle = nullptr;
}

void JobState::cancel() {
  if (finished) return;
  cancelled = true;
  if (waiter && waiter->cancellable_) waiter->wake(Wake::cancelled);
}

bool Waiter::suspend(std::coroutine_handle<> handle, JobState* job) {
  if (cancellable_ && job->cancelled) {
    wake_ = Wake::cancelled;
    return false;
  }
  handle_ = handle;
  job_ = job;
  job->waiter = this;
  linked_ = true;
  if (signal_) {
    previous_ = signal_->last_;
    (previous_ ? previous_->next_ : signal_->first_) = this;
    signal_->last_ = this;
  }
  if (until_ != kNever) timer_ = loop_.add_timer(until_, this);
  return true;
}

void Waiter::wake(Wake reason) {
  unlink();
  wake_ = reason;
  loop_.resume_later(handle_, job_);
}

void Waiter::unlink() {
  if (!linked_) return;
  linked_ = false;
  job_->waiter = nullptr;
  if (timer_ != 0) loop_.remove_timer(std::exchange(timer_, 0));
  if (signal_) {
    (previous_ ? previous_->next_ : signal_->first_) = next_;
    (next_ ? next_->previous_ : signal_->last_) = previous_;
  }
}

bool Waiter::await_resume() {
  // Cancelled between the wake-up and now: the wait had ended, so its result stands.
  if (wake_ == Wake::cancelled) throw Cancelled();
  return wake_ == Wake::signalled;
}

bool Yield::suspend(std::coroutine_handle<> handle, JobState* job) {
  cancelled_ = job->cancelled;
  if (!cancelled_) (until_idle_ ? loop_.idle_ : loop_.ready_).push_back({handle, job});
  return !cancelled_;
}

void Yield::await_resume() const {
  if (cancelled_) throw Cancelled();
}

}  // namespace detail

Signal::~Signal() { SKEIN_CHECK(first_ == nullptr, "a signal was destroyed while waited for"); }

void Signal::notify_all() {
  while (first_) first_->wake(detail::Wake::signalled);
}

bool Job::done() const { return state_->finished; }

void Job::cancel() { state_->cancel(); }

void Job::abandon() { state_->abandon(); }

Task<> Job::join() const {
  const auto state = state_;
  while (!state->finished) co_await state->ended.wait();
  Job(state).rethrow();
}

void Job::rethrow() const {
  SKEIN_CHECK(state_->finished && state_->task.handle(), "the job has not ended or was abandoned");
  state_->task.handle().promise().take();
}

Task<> Job::settle() const {
  const auto state = state_;
  while (!state->finished)
    co_await detail::Waiter(state->loop, &state->ended, kNever, /*cancellable=*/false);
}

Loop::Loop(const Clock& clock) : clock_(clock), timer_slots_(1) {}

Loop::~Loop() { abandon_jobs(); }

void Loop::abandon_jobs() {
  ready_.clear();
  idle_.clear();
  // The newest first: a job may refer to what lives in the frame of the job that started it.
  for (auto job = jobs_.rbegin(); job != jobs_.rend(); ++job) (*job)->abandon();
  jobs_.clear();
  finished_jobs_ = 0;
  ready_.clear();
}

Job Loop::start(Task<> task, bool background) {
  if (finished_jobs_ > 64 && finished_jobs_ * 2 > jobs_.size()) {
    std::erase_if(jobs_, [](const auto& job) { return job->finished; });
    finished_jobs_ = 0;
  }
  auto state = std::make_shared<detail::JobState>(*this, std::move(task), background);
  state->task.handle().promise().job = state.get();
  resume_later(state->task.handle(), state.get());
  jobs_.push_back(state);
  return Job(std::move(state));
}

Job Loop::spawn(Task<> task) { return start(std::move(task), false); }
Job Loop::spawn_background(Task<> task) { return start(std::move(task), true); }

void Loop::rethrow_failure() const {
  if (failure_) std::rethrow_exception(failure_);
}

std::uint32_t Loop::add_timer(Time time, detail::Waiter* waiter) {
  std::uint32_t slot = 0;
  if (free_timer_slots_.empty()) {
    slot = static_cast<std::uint32_t>(timer_slots_.size());
    timer_slots_.emplace_back();
  } else {
    slot = free_timer_slots_.back();
    free_timer_slots_.pop_back();
  }
  timer_slots_[slot].waiter = waiter;
  timers_.push_back({time, sequence_++, slot, timer_slots_[slot].generation});
  std::push_heap(timers_.begin(), timers_.end(), std::greater<>());
  return slot;
}

void Loop::remove_timer(std::uint32_t slot) {
  timer_slots_[slot].waiter = nullptr;
  ++timer_slots_[slot].generation;
  free_timer_slots_.push_back(slot);
  ++stale_timers_;
}

bool Loop::stale(const TimerEntry& entry) const {
  return timer_slots_[entry.slot].generation != entry.generation;
}

// Most timers are deadlines that never come due: without this the heap would fill with dead ones.
void Loop::drop_stale_timers() {
  if (stale_timers_ > 1024 && stale_timers_ * 2 > timers_.size()) {
    std::erase_if(timers_, [this](const TimerEntry& entry) { return stale(entry); });
    std::make_heap(timers_.begin(), timers_.end(), std::greater<>());
    stale_timers_ = 0;
  }
  while (!timers_.empty() && stale(timers_.front())) {
    std::pop_heap(timers_.begin(), timers_.end(), std::greater<>());
    timers_.pop_back();
    if (stale_timers_ > 0) --stale_timers_;
  }
}

void Loop::fire_timers() {
  const Time time = now();
  for (drop_stale_timers(); !timers_.empty() && timers_.front().time <= time; drop_stale_timers())
    timer_slots_[timers_.front().slot].waiter->wake(detail::Wake::timed_out);
}

std::size_t Loop::run_ready() {
  const OnQueue scope(queue_);
  std::size_t resumed = 0;
  for (fire_timers(); !ready_.empty() || admit_idle(); fire_timers()) {
    // What is queued now runs before timers that fall due meanwhile: nobody starves.
    for (std::size_t turn = ready_.size(); turn > 0; --turn, ++resumed) resume_next();
  }
  return resumed;
}

std::size_t Loop::run_turn(const std::function<bool()>& enough) {
  const OnQueue scope(queue_);
  fire_timers();
  if (ready_.empty()) admit_idle();
  std::size_t resumed = 0;
  for (std::size_t turn = ready_.size(); turn > 0; --turn) {
    resume_next();
    ++resumed;
    if (enough()) break;
  }
  return resumed;
}

bool Loop::admit_idle() {
  if (idle_.empty()) return false;
  ready_.push_back(idle_.front());
  idle_.pop_front();
  return true;
}

void Loop::resume_next() {
  const Ready next = ready_.front();
  ready_.pop_front();
  if (next.handle) next.handle.resume();
}

std::optional<Time> Loop::next_timer() {
  drop_stale_timers();
  if (timers_.empty()) return std::nullopt;
  return timers_.front().time;
}

namespace {

// What the tasks of one all_of tell their parent.
struct Gathering {
  explicit Gathering(Loop& loop) : changed(loop) {}
  std::size_t running = 0;
  std::exception_ptr error;
  Signal changed;
};

Task<> run_in(Gathering& gathering, Task<> task) {
  try {
    co_await task;
  } catch (...) {
    if (!gathering.error) gathering.error = std::current_exception();
  }
  --gathering.running;
  gathering.changed.notify_all();
}

}  // namespace

Task<> all_of(Loop& loop, std::vector<Task<>> tasks) {
  Gathering gathering(loop);
  gathering.running = tasks.size();
  std::vector<ScopedJob> jobs;
  jobs.reserve(tasks.size());
  for (auto& task : tasks) jobs.emplace_back(loop.spawn(run_in(gathering, std::move(task))));
  try {
    while (gathering.running > 0 && !gathering.error) co_await gathering.changed.wait();
  } catch (...) {
    gathering.error = std::current_exception();
  }
  if (!gathering.error) co_return;
  const std::exception_ptr error = gathering.error;
  for (ScopedJob& job : jobs) job->cancel();
  for (const ScopedJob& job : jobs) co_await job->settle();
  std::rethrow_exception(error);
}

}  // namespace skein
