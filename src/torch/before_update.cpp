#include "torch/before_update.h"

#include <exception>
#include <utility>

namespace skein {

void BeforeUpdate::set(std::function<void(AveragedGradients&)> change) {
  change_ = std::move(change);
  courier_.with_loop([this] {
    if (change_)
      worker_.before_update = [this](AveragedGradients& gradients) { return ask_user(gradients); };
    else
      worker_.before_update = nullptr;
  });
}

// Runs on the loop, which the user's code must not hold up: it may want to use the world itself.
Task<> BeforeUpdate::ask_user(AveragedGradients& gradients) {
  asked_ = &gradients;
  changed_.notify_all();
  while (asked_) co_await changed_.wait();
}

Task<> BeforeUpdate::announced(Task<> task, bool& ended) {
  std::exception_ptr error;
  try {
    co_await task;
  } catch (...) {
    error = std::current_exception();
  }
  ended = true;
  changed_.notify_all();
  if (error) std::rethrow_exception(error);
}

Task<> BeforeUpdate::asked_or(const bool& ended) {
  while (!asked_ && !ended) co_await changed_.wait();
}

void BeforeUpdate::wait(Task<> task, const std::function<void()>& abandoned) {
  if (!change_) return courier_.wait(std::move(task));
  bool ended = false;
  ScopedJob job;
  courier_.with_loop(
      [&] { job = ScopedJob(worker_.loop().spawn(announced(std::move(task), ended))); });
  try {
    for (;;) {
      courier_.wait(asked_or(ended));
      if (!asked_) break;
      asked_->set_source(&source_);
      change_(*asked_);
      courier_.with_loop([this] {
        asked_ = nullptr;
        changed_.notify_all();
      });
    }
  } catch (...) {
    abandoned();
    courier_.with_loop([&] {
      asked_ = nullptr;
      job = ScopedJob();
    });
    throw;
  }
  job->rethrow();
}

}  // namespace skein
