#include "torch/device_stream.h"

#include <c10/core/impl/VirtualGuardImpl.h>

namespace skein {
namespace {

// Old LibTorch's events cannot be waited for: a stream that waits for this one alone can.
template <typename Event>
void finish_event(const Event& event, torch::Device device) {
  if constexpr (requires { event.synchronize(); }) {
    event.synchronize();
  } else if (!event.query()) {
    const c10::Stream waiting = stream_from_pool(device);
    event.block(waiting);
    waiting.synchronize();
  }
}

}  // namespace

c10::Stream current_stream(torch::Device device) {
  return c10::impl::VirtualGuardImpl(device.type()).getStream(device);
}

c10::Stream stream_from_pool(torch::Device device) {
  return c10::impl::VirtualGuardImpl(device.type()).getStreamFromGlobalPool(device);
}

void finish_stream(torch::Device device) {
  if (!device.is_cpu()) current_stream(device).synchronize();
}

StreamMark::StreamMark(torch::Device device) : device_(device) {
  if (device.is_cpu()) return;
  event_.emplace(device.type());
  event_->record(current_stream(device));
}

void StreamMark::wait_on_stream() const {
  if (event_) event_->block(current_stream(device_));
}

void StreamMark::finish() const {
  if (event_) finish_event(*event_, device_);
}

}  // namespace skein
