#include "torch/read_hook.h"

#include <ATen/record_function.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <mutex>
#include <utility>
#include <vector>

namespace skein {
namespace {

// Torch operators that `before_read` runs are not reported.
thread_local bool inside_before_read = false;

struct InsideBeforeRead {
  InsideBeforeRead() { inside_before_read = true; }
  ~InsideBeforeRead() { inside_before_read = false; }
};

}  // namespace

// One hook's planes and what to call for them. Outlives the hook while an operator uses it.
class ReadHook::Target {
 public:
  Target(const Binding& binding, std::function<void(int)> before_read, Watch watch)
      : before_read_(std::move(before_read)) {
    if (watch != Watch::gradients) add_plane(binding.arena().parameters());
    if (watch != Watch::parameters) add_plane(binding.arena().gradients());
    for (const Slot& slot : binding.arena().slots()) ranges_.push_back(slot.range);
  }

  void set_active(bool active) { active_ = active; }

  void wait_until_idle() {
    for (int running = running_; running != 0; running = running_) running_.wait(running);
  }

  std::exception_ptr take_error() {
    const std::lock_guard lock(mutex_);
    failed_ = false;
    return std::exchange(error_, nullptr);
  }

  void examine(const at::Tensor& tensor) {
    if (!tensor.defined() || !tensor.has_storage()) return;
    const auto storage = reinterpret_cast<std::uintptr_t>(tensor.storage().data_ptr().get());
    for (const Plane& plane : planes_)
      if (plane.begin <= storage && storage < plane.end && tensor.numel() > 0)
        examine(tensor, storage - plane.begin);
  }

 private:
  struct Plane {
    std::uintptr_t begin, end;
  };

  void add_plane(Span plane) {
    const auto begin = reinterpret_cast<std::uintptr_t>(plane.data);
    planes_.push_back({begin, begin + plane.bytes()});
  }

  // `base` is where the tensor's storage begins in its plane, in bytes.
  void examine(const at::Tensor& tensor, std::uintptr_t base) {
    const auto item_bytes = static_cast<std::uintptr_t>(tensor.element_size());
    const auto first = base + static_cast<std::uintptr_t>(tensor.storage_offset()) * item_bytes;
    std::uintptr_t last = first + item_bytes - 1;  // of the last element: strides are not negative
    for (std::int64_t i = 0; i < tensor.dim(); ++i)
      last += static_cast<std::uintptr_t>((tensor.size(i) - 1) * tensor.stride(i)) * item_bytes;
    report(first / sizeof(float), last / sizeof(float));
  }

  // Every slot with an element in [first, last]: for a strided view possibly one more than it
  // reads.
  void report(std::size_t first, std::size_t last) {
    auto range = std::partition_point(ranges_.begin(), ranges_.end(),
                                      [&](const Range& r) { return r.end() <= first; });
    for (; range != ranges_.end() && range->offset <= last; ++range)
      if (range->count > 0) call(static_cast<int>(range - ranges_.begin()));
  }

  void call(int slot) {
    // Counted before `active_` is read: the hook's destructor clears it, then waits for the count.
    ++running_;
    if (active_ && !failed_) {
      try {
        const InsideBeforeRead inside;
        before_read_(slot);
      } catch (...) {
        const std::lock_guard lock(mutex_);
        if (!error_) error_ = std::current_exception();
        failed_ = true;
      }
    }
    if (--running_ == 0) running_.notify_all();
  }

  std::function<void(int)> before_read_;
  std::vector<Plane> planes_;
  std::vector<Range> ranges_;
  std::atomic<bool> active_ = false, failed_ = false;
  std::atomic<int> running_ = 0;
  std::mutex mutex_;
  std::exception_ptr error_;
};

namespace {

// Torch's observer is a bare function without an argument of ours, so this is where it finds the
// active hooks. It is installed while there are any.
class Observer {
 public:
  using Targets = std::vector<std::shared_ptr<ReadHook::Target>>;

  static Observer& instance() {
    static Observer observer;
    return observer;
  }

  void add(std::shared_ptr<ReadHook::Target> target) {
    const std::lock_guard lock(mutex_);
    auto targets = std::make_shared<Targets>(*targets_);
    if (std::find(targets->begin(), targets->end(), target) != targets->end()) return;
    targets->push_back(std::move(target));
    if (targets_->empty())
      handle_ = at::addGlobalCallback(at::RecordFunctionCallback(&Observer::before_operator)
                                          .needsInputs(true)
                                          .scopes({at::RecordScope::FUNCTION}));
    targets_ = std::move(targets);
  }

  void remove(const std::shared_ptr<ReadHook::Target>& target) {
    const std::lock_guard lock(mutex_);
    auto targets = std::make_shared<Targets>(*targets_);
    if (std::erase(*targets, target) == 0) return;
    targets_ = std::move(targets);
    if (targets_->empty()) at::removeCallback(handle_);
  }

 private:
  static std::unique_ptr<at::ObserverContext> before_operator(const at::RecordFunction& function) {
    if (inside_before_read) return nullptr;
    const std::shared_ptr<const Targets> targets = instance().targets();
    for (const auto& target : *targets)
      for (const at::IValue& input : function.inputs()) examine(*target, input);
    return nullptr;
  }

  static void examine(ReadHook::Target& target, const at::IValue& input) {
    if (input.isTensor()) {
      target.examine(input.toTensor());
    } else if (input.isList()) {
      for (const at::IValue& item : input.toListRef()) {
        if (item.isTensor())
          target.examine(item.toTensor());
        else if (!item.isNone())
          break;  // a list of something else
      }
    }
  }

  std::shared_ptr<const Targets> targets() {
    const std::lock_guard lock(mutex_);
    return targets_;
  }

  std::mutex mutex_;
  std::shared_ptr<const Targets> targets_ = std::make_shared<Targets>();
  at::CallbackHandle handle_ = at::INVALID_CALLBACK_HANDLE;
};

}  // namespace

ReadHook::ReadHook(const Binding& binding, std::function<void(int slot)> before_read, Watch watch)
    : target_(std::make_shared<Target>(binding, std::move(before_read), watch)) {}

ReadHook::~ReadHook() {
  deactivate();
  target_->wait_until_idle();
}

void ReadHook::activate() {
  target_->set_active(true);
  Observer::instance().add(target_);
}

void ReadHook::deactivate() {
  target_->set_active(false);
  Observer::instance().remove(target_);
}

std::exception_ptr ReadHook::take_error() { return target_->take_error(); }

}  // namespace skein
