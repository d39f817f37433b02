#include "toy/toy_device.h"

#include <atomic>
#include <set>

#include "kernels/bf16.h"
#include "kernels/kernels.h"
#include "toy/toy_memory.h"
#include "toy/toy_sharing.h"

namespace skein::toy {
namespace {

using namespace std::chrono_literals;

// All queues of the process.
struct Queues {
  std::mutex mutex;
  std::set<ToyQueue*> all;
};

Queues& queues() {
  static Queues all;
  return all;
}

class ToyMemory final : public Memory {
 public:
  ToyMemory(ToyQueue& queue, std::size_t count, Type type)
      : queue_(queue),
        block_(std::make_shared<Block>(count * size_of(type))),
        span_{block_->outside(), count, kDevice, type} {}
  ToyMemory(const ToyMemory&) = delete;
  ToyMemory& operator=(const ToyMemory&) = delete;
  ~ToyMemory() override {
    queue_.put([block = std::move(block_)] {});
  }
  Span span() const override { return span_; }

 private:
  ToyQueue& queue_;
  std::shared_ptr<Block> block_;
  Span span_;
};

class ToyEvent final : public Event {
 public:
  bool reached() const override { return reached_.load(std::memory_order_acquire); }
  void reach() {
    reached_.store(true, std::memory_order_release);
    reached_.notify_all();
  }
  void block() const { reached_.wait(false, std::memory_order_acquire); }

 private:
  std::atomic<bool> reached_{false};
};

}  // namespace

std::span<float> floats_of(Span span) {
  if (span.device.kind == Device::gpu) {
    std::set<ToyQueue*> all;
    {
      const std::lock_guard lock(queues().mutex);
      all = queues().all;
    }
    // One may wait for another.
    for (std::size_t i = 0; i < all.size(); ++i)
      for (ToyQueue* const queue : all) queue->finish();
  }
  return inside(span).host();
}

ToyQueue::ToyQueue(std::uint64_t seed, std::uint64_t dawdles_one_in)
    : rng_(seed),
      dawdles_one_in_(dawdles_one_in),
      sharing_(std::make_unique<ToySharing>(*this)),
      thread_([this] { run(); }) {
  const std::lock_guard lock(queues().mutex);
  queues().all.insert(this);
}

ToyQueue::~ToyQueue() {
  {
    const std::lock_guard lock(queues().mutex);
    queues().all.erase(this);
  }
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void ToyQueue::put(std::function<void()> work) {
  {
    const std::lock_guard lock(mutex_);
    work_.push_back(std::move(work));
  }
  changed_.notify_all();
}

void ToyQueue::run() {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [this] { return stop_ || !work_.empty(); });
    if (work_.empty()) return;
    auto work = std::move(work_.front());
    work_.pop_front();
    busy_ = true;
    const bool dawdles = rng_.below(dawdles_one_in_) == 0;
    lock.unlock();
    if (dawdles) std::this_thread::sleep_for(100us);
    work();
    work = nullptr;
    lock.lock();
    busy_ = false;
    changed_.notify_all();
  }
}

void ToyQueue::finish() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return work_.empty() && !busy_; });
}

Mark ToyQueue::record() {
  auto event = std::make_shared<ToyEvent>();
  put([event] { event->reach(); });
  return event;
}

void ToyQueue::wait(const Mark& mark) {
  if (reached(mark)) return;
  put([mark] { dynamic_cast<const ToyEvent&>(*mark).block(); });
}

Sharing* ToyQueue::sharing() { return sharing_.get(); }

ToySharing& ToyQueue::toy_sharing() { return *sharing_; }

std::unique_ptr<Memory> ToyQueue::allocate(std::size_t count, Type type) {
  return std::make_unique<ToyMemory>(*this, count, type);
}

template <typename Work>
Figure ToyQueue::figure(Work work) {
  auto value = std::make_shared<double>();
  put([value, work] { *value = work(); });
  return {value, record()};
}

void ToyQueue::copy(Span dst, Span src) {
  put([=] { skein::copy(inside(dst), inside(src)); });
}
void ToyQueue::copy_to_both(Span one, Span two, Span src) {
  put([=] { skein::copy_to_both(inside(one), inside(two), inside(src)); });
}
void ToyQueue::copy_scaled(Span dst, float a, Span src) {
  put([=] { skein::copy_scaled(inside(dst), a, inside(src)); });
}
void ToyQueue::fill(Span dst, float value) {
  put([=] { skein::fill(inside(dst), value); });
}
void ToyQueue::scale(Span y, float a) {
  put([=] { skein::scale(inside(y), a); });
}
void ToyQueue::add(Span y, Span x) {
  put([=] { skein::add(inside(y), inside(x)); });
}
void ToyQueue::axpy(Span y, float a, Span x) {
  put([=] { skein::axpy(inside(y), a, inside(x)); });
}
void ToyQueue::raise_to(Span y, float least) {
  put([=] { skein::raise_to(inside(y), least); });
}
void ToyQueue::sum(Span dst, std::span<const Span> sources) {
  put([dst, all = std::vector<Span>(sources.begin(), sources.end())]() mutable {
    for (Span& source : all) source = inside(source);
    skein::sum(inside(dst), all);
  });
}
void ToyQueue::add_difference(Span x, Span a, Span s) {
  put([=] { skein::add_difference(inside(x), inside(a), inside(s)); });
}
void ToyQueue::mix(Span x, Span y, float c, float s) {
  put([=] { skein::mix(inside(x), inside(y), c, s); });
}
Figure ToyQueue::squared_norm(Span x) {
  return figure([=] { return skein::squared_norm(inside(x)); });
}
Figure ToyQueue::squared_distance(Span x, Span y) {
  return figure([=] { return skein::squared_distance(inside(x), inside(y)); });
}
Figure ToyQueue::move_by_mean(Span x, float a, Span sum, Span s) {
  return figure([=] { return skein::move_by_mean(inside(x), a, inside(sum), inside(s)); });
}
Figure ToyQueue::become_mean(Span x, float a, Span sum) {
  return figure([=] { return skein::become_mean(inside(x), a, inside(sum)); });
}
void ToyQueue::sgd_update(Span parameters, Span gradients, const SgdFactors& factors) {
  put([=] { skein::sgd_update(inside(parameters), inside(gradients), factors); });
}
void ToyQueue::sgd_update(Span parameters, Span gradients, Span buffer, const SgdFactors& factors) {
  put([=] { skein::sgd_update(inside(parameters), inside(gradients), inside(buffer), factors); });
}
void ToyQueue::adamw_update(Span parameters, Span gradients, Span exp_avg, Span exp_avg_sq,
                            const AdamwFactors& factors) {
  put([=] {
    skein::adamw_update(inside(parameters), inside(gradients), inside(exp_avg), inside(exp_avg_sq),
                        factors);
  });
}
void ToyQueue::to_bf16(Span packed, Span values) {
  put([=] { skein::to_bf16(inside(packed), inside(values)); });
}
void ToyQueue::from_bf16(Span values, Span packed) {
  put([=] { skein::from_bf16(inside(values), inside(packed)); });
}
void ToyQueue::add_bf16(Span values, Span packed) {
  put([=] { skein::add_bf16(inside(values), inside(packed)); });
}
void ToyQueue::round_to_bf16(Span values) {
  put([=] { skein::round_to_bf16(inside(values)); });
}
void ToyQueue::restore_rounded(Span values, Span exact) {
  put([=] { skein::restore_rounded(inside(values), inside(exact)); });
}

}  // namespace skein::toy
