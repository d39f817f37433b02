// What the user's own code may do when: with gradients between backward() and step(), and with
// calls.
#include <fmt/format.h>

#include <cstdio>
#include <utility>

#include "torch/distributed_impl.h"

namespace skein {

// Gradients of other workers are in the sum already, and this worker's may be: nobody can go on.
void Distributed::Impl::check_touched_gradients() {
  const auto touch = driver_.touches();
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
    if (!driver_.begun() && gradient.defined() && !binding_.gradient_is_in_place(slot)) return;
  }
  if (driver_.begun() && cleared && expected)
    throw ConfigError(fmt::format(
        "step({0}) came after the gradients of its backward() were cleared, by zero_grad(), say; "
        "expected step() to clear them, and step(0) to discard a batch",
        samples));
  if (driver_.begun()) return;
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
  if (driver_.begun())
    throw ConfigError(
        fmt::format("{} came between backward() and step(): expected it between steps", what));
}

}  // namespace skein
