#include "sim/engine.h"

#include <algorithm>
#include <map>

#include "core/check.h"
#include "core/queue.h"

namespace skein::sim {

class Engine::LoopTimers final : public Handler {
 public:
  explicit LoopTimers(Engine& engine) : engine_(engine) {}
  void happen(std::uint64_t token) override {
    const int index = static_cast<int>(token);
    Lane& lane = engine_.lane(index);
    // One of an earlier life of this loop.
    if (lane.timers.empty() || lane.timers.back() > engine_.now()) return;
    lane.timers.pop_back();
    engine_.wake(index);
  }

 private:
  Engine& engine_;
};

// Functions to be called, for what happens too rarely to deserve a handler.
class Engine::Actions final : public Handler {
 public:
  void happen(std::uint64_t token) override { waiting_.extract(token).mapped()(); }
  std::uint64_t add(std::function<void()> action) {
    waiting_.emplace(next_, std::move(action));
    return next_++;
  }

 private:
  std::map<std::uint64_t, std::function<void()>> waiting_;
  std::uint64_t next_ = 0;
};

Engine::Engine(Queue* queue)
    : device_queue_(queue),
      loop_timers_(std::make_unique<LoopTimers>(*this)),
      actions_(std::make_unique<Actions>()) {}

Engine::~Engine() = default;

std::unique_ptr<Loop> Engine::make_loop() const {
  auto loop = std::make_unique<Loop>(clock_);
  loop->use(device_queue_);
  return loop;
}

int Engine::add_loop() {
  lanes_.push_back(std::make_unique<Lane>());
  lanes_.back()->loop = make_loop();
  return static_cast<int>(lanes_.size()) - 1;
}

void Engine::schedule(Time time, Handler& handler, std::uint64_t token) {
  SKEIN_CHECK(time >= now(), "an event in the past");
  queue_.push_back({time, sequence_++, &handler, token});
  std::push_heap(queue_.begin(), queue_.end(), std::greater<>());
}

void Engine::schedule(Time time, std::function<void()> action) {
  schedule(time, *actions_, actions_->add(std::move(action)));
}

void Engine::settle_later(Handler& handler) {
  if (std::find(settling_.begin(), settling_.end(), &handler) == settling_.end())
    settling_.push_back(&handler);
}

void Engine::wake(int index) {
  Lane& target = lane(index);
  if (target.woken || target.stopped) return;
  target.woken = true;
  if (!target.paused) woken_.push_back(index);
}

void Engine::pause(int index) {
  Lane& target = lane(index);
  target.paused = true;
  std::erase(woken_, index);
}

void Engine::resume(int index) {
  Lane& target = lane(index);
  if (!target.paused) return;
  target.paused = false;
  if (target.woken) woken_.push_back(index);
}

void Engine::stop(int index) {
  Lane& target = lane(index);
  target.loop->abandon_jobs();
  target.stopped = true;
  target.woken = false;
  std::erase(woken_, index);
}

void Engine::restart(int index) {
  Lane& target = lane(index);
  SKEIN_CHECK(target.stopped, "loop {} runs already", index);
  target = Lane();
  target.loop = make_loop();
}

void Engine::schedule_timer(int index) {
  Lane& target = lane(index);
  const auto next = target.loop->next_timer();
  if (!next || (!target.timers.empty() && *next >= target.timers.back())) return;
  target.timers.push_back(std::max(*next, now()));
  schedule(target.timers.back(), *loop_timers_, static_cast<std::uint64_t>(index));
}

void Engine::run_loops() {
  while (!woken_.empty()) {
    const int index = woken_.front();
    woken_.pop_front();
    lane(index).woken = false;
    events_ += lane(index).loop->run_ready();
    if (!lane(index).stopped) schedule_timer(index);
  }
}

Engine::End Engine::run(const std::function<bool()>& done, const Limits& limits) {
  const OnQueue scope(device_queue_);  // for what happens outside of the loops
  for (;;) {
    run_loops();
    while (!settling_.empty()) {
      Handler* handler = settling_.back();
      settling_.pop_back();
      handler->settle();
    }
    if (done()) return End::condition;
    if (queue_.empty()) return End::idle;
    if (events_ >= limits.events) return End::events;
    const Time time = queue_.front().time;
    if (time > limits.until) {
      clock_.advance_to(limits.until);
      return End::time;
    }
    clock_.advance_to(time);
    while (!queue_.empty() && queue_.front().time == time && events_ < limits.events) {
      const Event event = queue_.front();
      std::pop_heap(queue_.begin(), queue_.end(), std::greater<>());
      queue_.pop_back();
      ++events_;
      event.handler->happen(event.token);
    }
  }
}

}  // namespace skein::sim
