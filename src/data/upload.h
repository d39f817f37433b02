// Brings batches to the device that computes on them, and nobody waits for it.
#pragma once

#include <c10/core/Stream.h>

#include <memory>
#include <optional>

#include "data/dataset.h"
#include "torch/device_stream.h"

namespace skein {

// Batches go to a device through pinned memory, on a stream of their own, beside what it computes.
// On the host they are where they should be.
class Upload {
 public:
  // `channels_last`: images arrive in that memory format.
  explicit Upload(torch::Device device = torch::kCPU, bool channels_last = false);

  // A batch on its way.
  struct Pending {
    Batch batch;
    std::shared_ptr<const StreamMark> there;
  };

  // Starts on any thread.
  Pending start(const Batch& batch) const;

  // By the thread that computes: what it puts on its stream from now on finds the batch there.
  Batch finish(Pending pending) const;

  // Both at once, in the order of this thread's stream.
  Batch bring(const Batch& batch) const { return {bring(batch.data), bring(batch.target)}; }

 private:
  torch::Tensor bring(const torch::Tensor& tensor) const;

  torch::Device device_;
  bool channels_last_;
  std::optional<c10::Stream> stream_;  // none on the host
};

}  // namespace skein
