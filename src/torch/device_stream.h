// Streams of a device, as far as one waits for another: the same for every kind of device that
// torch knows, and nothing at all on the host.
#pragma once

#include <c10/core/Event.h>
#include <c10/core/Stream.h>
#include <torch/torch.h>

#include <optional>

namespace skein {

// The stream on which this thread computes on `device`, which is not the host.
c10::Stream current_stream(torch::Device device);

// Another one, from torch's pool.
c10::Stream stream_from_pool(torch::Device device);

// Blocks until all is done that this thread has put on the device's current stream. On the host
// there is nothing to wait for.
void finish_stream(torch::Device device);

// The present end of what is on this thread's stream of a device. On the host it is reached.
class StreamMark {
 public:
  explicit StreamMark(torch::Device device);
  StreamMark(const StreamMark&) = delete;
  StreamMark& operator=(const StreamMark&) = delete;

  // What this thread computes from now on comes after it. The host does not wait.
  void wait_on_stream() const;

  void finish() const;  // blocks until it is reached

 private:
  torch::Device device_;
  std::optional<c10::Event> event_;
};

}  // namespace skein
