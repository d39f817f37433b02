// A module as a Driver sees it: where it computes, and who touches its gradients.
#pragma once

#include <deque>
#include <functional>
#include <memory>

#include "runtime/courier.h"
#include "strategy/program.h"
#include "strategy/worker.h"
#include "torch/binding.h"
#include "torch/device_trace.h"
#include "torch/read_hook.h"
#include "torch/torch_stream.h"

namespace skein {

// For the user's thread. Operators that touch gradients are seen (see ReadHook), and gradients that
// were replaced; not writes through data_ptr().
class ModuleProgram final : public Program {
 public:
  // All outlive it. `on_touch` is called on the thread that runs the operator.
  ModuleProgram(const Binding& binding, const TorchStream& stream, Courier& courier, Worker& worker,
                std::function<void(int slot)> on_touch);

  // The binding has another arena now. Only between steps.
  void arena_changed();

  Mark record() override { return stream_.record(); }
  void wait(const Mark& mark) override { stream_.wait(mark); }
  void post(std::function<void()> action) override { courier_.post(std::move(action)); }
  void with_loop(const std::function<void()>& action) override { courier_.with_loop(action); }
  bool expects_gradient(int slot) const override {
    return binding_.parameter(slot).requires_grad();
  }
  bool sees_touches() const override { return true; }
  void watch_gradients(bool on) override { on ? touches_->activate() : touches_->deactivate(); }
  bool gradient_is_in_place(int slot) const override { return binding_.gradient_is_in_place(slot); }
  void sums_begin() override;
  void sums_end() override;

  // Tells `trace` from now on what the device does when.
  void trace_device(Trace& trace);

  // Forward and backward of a step, as the device computes them.
  void computing_begins();
  void computing_ends();

  // Waits until the device is two steps behind the host and no more: what is further ahead would
  // only take memory, and nobody could stop it.
  void stay_near();

 private:
  const Binding& binding_;
  const TorchStream& stream_;
  Courier& courier_;
  Worker& worker_;
  std::function<void(int slot)> on_touch_;
  std::unique_ptr<ReadHook> touches_;
  std::unique_ptr<DeviceTrace> trace_;  // where one is wanted and there is a device
  std::deque<Mark> computed_;           // the ends of the last steps, as the device comes to them
};

}  // namespace skein
