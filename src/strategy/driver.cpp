#include "strategy/driver.h"

#include <utility>

namespace skein {

Driver::Driver(Worker& worker, Strategy& strategy, WorkerTime& time, Program& program)
    : worker_(worker), strategy_(strategy), time_(time), program_(program), gradients_(program) {
  start_computing();
}

void Driver::start_computing() {
  computing_from_ = now();
  waited_ = Duration(0);
}

// Workers in lockstep hear the number with begin_step().
void Driver::expect(std::int64_t samples) {
  after_flush();
  expected_ = samples;
  if (!strategy_.lockstep()) in_order([&] { strategy_.expect(samples); });
  start_computing();
}

// The time of a wait begins when the program calls, not when the loop is free.
Task<> Driver::need(int bucket) { return need_at(now(), bucket); }

Task<> Driver::need_at(Time from, int bucket) {
  handed_over_ = co_await strategy_.need(bucket);
  has_waited("read", from);
  const std::lock_guard lock(reading_);
  if (unread_count_ == 0 || !unread_[static_cast<std::size_t>(bucket)]) co_return;
  unread_[static_cast<std::size_t>(bucket)] = false;
  --unread_count_;
}

int Driver::unread(int slot) const {
  const std::lock_guard lock(reading_);
  if (unread_count_ == 0) return -1;
  const int bucket = strategy_.plan().bucket_of(slot);
  return unread_[static_cast<std::size_t>(bucket)] ? bucket : -1;
}

bool Driver::any_unread() const {
  const std::lock_guard lock(reading_);
  return unread_count_ > 0;
}

void Driver::set_unread(bool unread) {
  if (!strategy_.waits_for_reads()) return;
  const std::lock_guard lock(reading_);
  unread_count_ = unread ? strategy_.plan().count() : 0;
  unread_.assign(static_cast<std::size_t>(unread_count_), true);
}

Task<> Driver::begin(std::int64_t samples) {
  if (!begun_ && samples != kUnknown) expected_ = samples;
  return begin_at(now(), begun_ ? nullptr : program_.record());
}

Task<> Driver::begin_at(Time from, Mark computed) {
  if (std::exchange(begun_, true)) co_return;
  arrive(computed);
  co_await strategy_.begin_step(expected_);
  hand_over(computed);
  has_waited("begin", from);
}

void Driver::gradient(int slot) {
  SKEIN_CHECK(begun_, "a gradient of a step that has not begun");
  if (!std::exchange(counting_, true))
    for (const int bucket : gradients_.begin(worker_.arena(), strategy_.plan(), passes_,
                                             strategy_.sends_in_backward(), expected_ != kUnknown))
      leave(bucket);
  if (const int bucket = gradients_.add(slot); bucket >= 0) leave(bucket);
}

void Driver::leave(int bucket) {
  worker_.fabric().progressed();
  program_.post([this, bucket, computed = program_.record()] {
    arrive(computed);
    program_.sums_begin();
    strategy_.gradient_ready(bucket);
  });
}

void Driver::bucket_ready(int bucket) {
  worker_.fabric().progressed();
  arrive(program_.record());
  strategy_.gradient_ready(bucket);
}

std::optional<StepGradients::Touch> Driver::touches() {
  if (!std::exchange(counting_, false)) return {};
  return gradients_.end();
}

Task<> Driver::end(std::int64_t samples) {
  const Time from = now();
  worker_.meters.computed(from - computing_from_ - waited_, samples);
  if (!begun_) expected_ = samples;
  touches();
  set_unread(false);
  return end_at(from, program_.record(), samples);
}

Task<> Driver::end_at(Time from, Mark computed, std::int64_t samples) {
  arrive(computed);
  if (!std::exchange(begun_, true)) {
    co_await strategy_.begin_step(expected_);
    has_waited("begin", std::exchange(from, now()));
  }
  program_.sums_begin();
  co_await strategy_.end_step(samples);
  // A strategy may have left that to the driver.
  if (!strategy_.waits_for_reads()) worker_.model_updated();
  program_.sums_end();
  // Where forward waits for each bucket by itself it need not wait for all.
  if (!strategy_.waits_for_reads()) hand_over(computed);
  has_waited("step", from);
  worker_.fabric().progressed();
  begun_ = false;
  if (samples > 0) usual_ = samples;
  expected_ = usual_;
  set_unread(true);
  start_computing();
}

void Driver::after_flush() {
  if (!std::exchange(flushed_, false)) return;
  in_order([this] { strategy_.after_flush(); });
  start_computing();
}

// On the host a task is its own: nothing is put between.
Task<> Driver::between_steps(Task<> task) {
  flushed_ = settling_ = true;
  Mark computed = program_.record();
  return computed ? after(std::move(computed), std::move(task)) : std::move(task);
}

Task<> Driver::after(Mark computed, Task<> task) {
  arrive(computed);
  co_await task;
  hand_over(computed);
}

void Driver::in_order(const std::function<void()>& work) {
  const Mark computed = program_.record();
  program_.with_loop([&] {
    arrive(computed);
    work();
    hand_over(computed);
  });
  follow();
}

void Driver::follow() {
  if (std::exchange(settling_, false)) set_unread(false);
  program_.wait(std::exchange(handed_over_, nullptr));
}

// What the strategy does from here on comes after what has been computed.
void Driver::arrive(const Mark& computed) const {
  if (computed) worker_.loop().queue()->wait(computed);
}

// And what is computed next after what the strategy has done, where that is on a device.
void Driver::hand_over(const Mark& computed) {
  if (computed) handed_over_ = worker_.loop().queue()->record();
}

void Driver::has_waited(const char* what, Time from) {
  const Time to = now();
  time_.span(Lane::wait, what, from, to);
  waited_ += to - from;
}

}  // namespace skein
