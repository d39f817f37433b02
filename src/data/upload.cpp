#include "data/upload.h"

#include <c10/core/StreamGuard.h>

#include <utility>

namespace skein {

Upload::Upload(torch::Device device, bool channels_last)
    : device_(device), channels_last_(channels_last) {
  if (!device.is_cpu()) stream_ = stream_from_pool(device);
}

// Torch keeps the pinned memory until the copy is done.
torch::Tensor Upload::bring(const torch::Tensor& tensor) const {
  const torch::Tensor there =
      stream_ ? tensor.pin_memory().to(device_, /*non_blocking=*/true) : tensor;
  if (!channels_last_ || there.dim() != 4) return there;
  return there.contiguous(at::MemoryFormat::ChannelsLast);
}

Upload::Pending Upload::start(const Batch& batch) const {
  if (!stream_) return {bring(batch), nullptr};
  const c10::StreamGuard on(*stream_);
  Batch there = bring(batch);
  return {std::move(there), std::make_shared<StreamMark>(device_)};
}

// The memory belongs to the other stream: torch must know that this one uses it too, or it would be
// given out again too early.
Batch Upload::finish(Pending pending) const {
  if (!pending.there) return std::move(pending.batch);
  pending.there->wait_on_stream();
  const c10::Stream stream = current_stream(device_);
  pending.batch.data.record_stream(stream);
  pending.batch.target.record_stream(stream);
  return std::move(pending.batch);
}

}  // namespace skein
