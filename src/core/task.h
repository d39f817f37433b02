// The coroutine that strategies and fabrics are written in.
//
// A Task starts when it is awaited (or given to Loop::spawn) and belongs to whoever holds it. It
// runs on one Loop, on one thread at a time. Exceptions pass to the awaiter. When the job that a
// task is part of is cancelled, its innermost wait throws Cancelled, which must pass through.
#pragma once

#include <coroutine>
#include <exception>
#include <optional>
#include <utility>

#include "core/check.h"

namespace skein {

namespace detail {

class JobState;

// What every task's coroutine frame holds: the job it is part of and who awaits it.
struct PromiseBase {
  JobState* job = nullptr;
  std::coroutine_handle<> awaiter;
  bool started_inline = false;  // the awaiter is still inside its first resume of this task
  std::exception_ptr error;

  std::suspend_always initial_suspend() noexcept { return {}; }

  struct FinalAwaiter {
    bool await_ready() noexcept { return false; }
    template <typename Promise>
    void await_suspend(std::coroutine_handle<Promise> handle) noexcept {
      handle.promise().finished();
    }
    void await_resume() noexcept {}
  };
  FinalAwaiter final_suspend() noexcept { return {}; }
  void unhandled_exception() noexcept { error = std::current_exception(); }

  // Queues the awaiter on the loop: nothing is ever resumed from inside another coroutine's last
  // breath, so stacks stay flat without relying on tail calls.
  void finished() noexcept;
};

template <typename T>
struct Promise;

}  // namespace detail

template <typename T = void>
class [[nodiscard]] Task {
 public:
  using promise_type = detail::Promise<T>;
  using Handle = std::coroutine_handle<promise_type>;

  Task() = default;
  explicit Task(Handle handle) : handle_(handle) {}
  Task(Task&& other) noexcept : handle_(std::exchange(other.handle_, {})) {}
  Task& operator=(Task&& other) noexcept {
    if (this != &other) {
      if (handle_) handle_.destroy();
      handle_ = std::exchange(other.handle_, {});
    }
    return *this;
  }
  ~Task() {
    if (handle_) handle_.destroy();
  }

  Handle handle() const { return handle_; }

  struct Awaiter {
    Handle task;
    bool await_ready() const noexcept { return false; }
    template <typename Parent>
    bool await_suspend(std::coroutine_handle<Parent> parent) {
      auto& promise = task.promise();
      promise.job = parent.promise().job;
      promise.awaiter = parent;
      promise.started_inline = true;
      task.resume();
      if (task.done()) return false;
      promise.started_inline = false;
      return true;
    }
    T await_resume() { return task.promise().take(); }
  };
  Awaiter operator co_await() const& noexcept { return {handle_}; }
  Awaiter operator co_await() const&& noexcept { return {handle_}; }

 private:
  Handle handle_;
};

namespace detail {

template <typename T>
struct Promise : PromiseBase {
  std::optional<T> value;
  Task<T> get_return_object() { return Task<T>(Task<T>::Handle::from_promise(*this)); }
  template <typename U>
  void return_value(U&& result) {
    value.emplace(std::forward<U>(result));
  }
  T take() {
    if (error) std::rethrow_exception(error);
    return std::move(*value);
  }
};

template <>
struct Promise<void> : PromiseBase {
  Task<void> get_return_object() { return Task<void>(Task<void>::Handle::from_promise(*this)); }
  void return_void() noexcept {}
  void take() {
    if (error) std::rethrow_exception(error);
  }
};

}  // namespace detail
}  // namespace skein
