#include "torch/module_program.h"

#include <fmt/format.h>

#include <utility>

namespace skein {

ModuleProgram::ModuleProgram(const Binding& binding, const TorchStream& stream, Courier& courier,
                             Worker& worker, std::function<void(int slot)> on_touch)
    : binding_(binding),
      stream_(stream),
      courier_(courier),
      worker_(worker),
      on_touch_(std::move(on_touch)) {
  arena_changed();
}

void ModuleProgram::arena_changed() {
  touches_ = std::make_unique<ReadHook>(
      binding_, [this](int slot) { on_touch_(slot); }, ReadHook::Watch::gradients);
}

void ModuleProgram::sums_begin() {
  if (trace_) trace_->begin(Lane::device_sums, stream_of(*worker_.loop().queue()));
}

void ModuleProgram::sums_end() {
  if (!trace_) return;
  trace_->end(Lane::device_sums, stream_of(*worker_.loop().queue()),
              fmt::format("sums and update of step {}", worker_.progress.steps));
  trace_->report();
}

void ModuleProgram::trace_device(Trace& trace) {
  if (!stream_.on_device()) return;
  courier_.with_loop([&] { trace_ = std::make_unique<DeviceTrace>(trace, stream_.device()); });
}

void ModuleProgram::computing_begins() {
  if (trace_)
    courier_.with_loop([this] { trace_->begin(Lane::device_compute, stream_.current()); });
}

void ModuleProgram::computing_ends() {
  if (trace_)
    courier_.with_loop([this] {
      trace_->end(Lane::device_compute, stream_.current(),
                  fmt::format("computing step {}", worker_.progress.steps + 1));
    });
}

void ModuleProgram::stay_near() {
  constexpr std::size_t kAhead = 2;
  if (!stream_.on_device()) return;
  computed_.push_back(stream_.record());
  if (computed_.size() <= kAhead) return;
  courier_.wait(until_reached(worker_.loop(), computed_.front()));
  computed_.pop_front();
}

}  // namespace skein
