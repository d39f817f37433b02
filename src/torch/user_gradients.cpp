// What the user's own code does with gradients: between backward() and step(), and in
// before_update().
#include <fmt/format.h>

#include <cstdio>
#include <utility>

#include "torch/distributed_impl.h"

namespace skein {

// Gradients of other workers are in the sum already, and this worker's may be: nobody can go on.
void Distributed::Impl::check_touched_gradients() {
  const auto touch = gradients_.end();
  if (!touch) return;
  const std::string& name = binding_.names_of_slot(touch->slot).front();
  if (touch->left) {
    broken_ = fmt::format(
        "step {}: the gradient of '{}' was read or changed between backward() and step(), when it "
        "was on its way to the other workers already. Expected one of: before_update(), which may "
        "look at the averaged gradient and change it; OptimizerSpec::clip(); the strategy's option "
        "overlap=false, with which gradients stay here until step()",
        worker_.progress.steps + 1, name);
    world_.fail(broken_);
    throw ConfigError(broken_);
  }
  if (world_.rank() == 0)
    std::fprintf(stderr,
                 "skein: the gradient of '%s' was read or changed between backward() and step(): "
                 "from now on gradients leave in step() only, so that this works, and their way no "
                 "longer hides behind backward. The strategy's option overlap=false says so at "
                 "once; before_update() keeps the overlap.\n",
                 name.c_str());
}

// A gradient may also have been written by hand, in place or as another tensor. Where all
// parameters are frozen there is none to come.
void Distributed::Impl::check_has_gradients(std::int64_t samples) const {
  bool expected = false, cleared = true;
  for (int slot = 0; slot < binding_.slots(); ++slot) {
    const torch::Tensor& gradient = binding_.parameter(slot).grad();
    expected = expected || binding_.parameter(slot).requires_grad();
    cleared = cleared && !gradient.defined();
    if (!begun_ && gradient.defined() && !binding_.gradient_is_in_place(slot)) return;
  }
  if (begun_ && cleared && expected)
    throw ConfigError(fmt::format(
        "step({0}) came after the gradients of its backward() were cleared, by zero_grad(), say; "
        "expected step() to clear them, and step(0) to discard a batch",
        samples));
  if (begun_) return;
  const torch::NoGradGuard no_grad;
  if (!expected || binding_.gradient_plane().count_nonzero().item<std::int64_t>() > 0) return;
  throw ConfigError(fmt::format(
      "step({0}) came without a gradient: no backward() of this module has been called since the "
      "last step; expected one, or step(0) where a worker has no samples",
      samples));
}

void Distributed::Impl::check_not_evaluating(const char* call) const {
  if (averages_.evaluating())
    throw ConfigError(fmt::format(
        "{} came inside evaluate(), whose model is lent: call it when evaluate() has ended", call));
}

void Distributed::Impl::check_usable() const {
  if (!broken_.empty()) throw ConfigError(broken_);
  World::Impl& world = world_.impl();
  world.courier().check_home();
  if (!world.failed().empty())
    throw Error(
        fmt::format("this worker has told the others that it ends: {}; expected no more "
                    "calls of its runs",
                    world.failed()));
}

void Distributed::Impl::check_between_steps(const char* what) const {
  check_usable();
  if (begun_)
    throw ConfigError(
        fmt::format("{} came between backward() and step(): expected it between steps", what));
}

void Distributed::Impl::before_update(std::function<void(AveragedGradients&)> change) {
  before_update_ = std::move(change);
  courier().with_loop([this] {
    if (before_update_)
      worker_.before_update = [this](AveragedGradients& gradients) { return ask_user(gradients); };
    else
      worker_.before_update = nullptr;
  });
}

// Runs on the loop, which the user's code must not hold up: it may want to use the world itself.
Task<> Distributed::Impl::ask_user(AveragedGradients& gradients) {
  asked_ = &gradients;
  user_.notify_all();
  while (asked_) co_await user_.wait();
}

Task<> Distributed::Impl::announced(Task<> task, bool& ended) {
  std::exception_ptr error;
  try {
    co_await task;
  } catch (...) {
    error = std::current_exception();
  }
  ended = true;
  user_.notify_all();
  if (error) std::rethrow_exception(error);
}

Task<> Distributed::Impl::asked_or(const bool& ended) {
  while (!asked_ && !ended) co_await user_.wait();
}

// Says, when another worker is waited for in vain, what that one is in instead.
void Distributed::Impl::wait(Task<> task) {
  try {
    wait_and_ask(calls().inside("run.step()", std::move(task)));
  } catch (const TooLate& late) {
    throw calls().explain("run.step()", late);
  }
}

// The same where nothing can ask the user.
void Distributed::Impl::wait_inside(Task<> task) {
  try {
    courier().wait(calls().inside("run.step()", std::move(task)));
  } catch (const TooLate& late) {
    throw calls().explain("run.step()", late);
  }
}

// Waits for what may ask the user on its way.
void Distributed::Impl::wait_and_ask(Task<> task) {
  if (!before_update_) return courier().wait(std::move(task));
  bool ended = false;
  ScopedJob job;
  courier().with_loop(
      [&] { job = ScopedJob(world_.impl().loop().spawn(announced(std::move(task), ended))); });
  try {
    for (;;) {
      courier().wait(asked_or(ended));
      if (!asked_) break;
      asked_->set_source(&source_);
      before_update_(*asked_);
      courier().with_loop([this] {
        asked_ = nullptr;
        user_.notify_all();
      });
    }
  } catch (...) {
    broken_ =
        "an earlier step failed in before_update() or while it waited: make a new Distributed";
    courier().with_loop([&] {
      asked_ = nullptr;
      job = ScopedJob();
    });
    throw;
  }
  job->rethrow();
}

}  // namespace skein
