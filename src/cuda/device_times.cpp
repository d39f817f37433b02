// Events that have a time.
#include "cuda/cuda.h"
#include "cuda/cuda_queue.h"

namespace skein {
namespace {

class TimedEvent final : public Event {
 public:
  TimedEvent(int device, cudaStream_t stream) {
    const cuda::OnDevice scope(device);
    cuda::check(cudaEventCreate(&event_), "making an event");
    cuda::check(cudaEventRecord(event_, stream), "recording an event");
  }
  TimedEvent(const TimedEvent&) = delete;
  TimedEvent& operator=(const TimedEvent&) = delete;
  ~TimedEvent() override { static_cast<void>(cudaEventDestroy(event_)); }

  bool reached() const override { return cudaEventQuery(event_) == cudaSuccess; }
  cudaEvent_t event() const { return event_; }

 private:
  cudaEvent_t event_ = nullptr;
};

class CudaTimes final : public DeviceTimes {
 public:
  CudaTimes(int device, const Clock& clock) : device_(device) {
    const cuda::OnDevice scope(device);
    cuda::check(cudaDeviceSynchronize(), "what was put on the device");
    first_ = std::make_shared<TimedEvent>(device, nullptr);
    cuda::check(cudaEventSynchronize(first_->event()), "the first event");
    first_time_ = clock.now();
  }

  Mark record_on(void* stream) override {
    return std::make_shared<TimedEvent>(device_, static_cast<cudaStream_t>(stream));
  }

  // Differences are floats of milliseconds: over long times they would be coarse.
  Time when(const Mark& mark) override {
    constexpr float kLong = 10'000;
    const auto event = std::dynamic_pointer_cast<const TimedEvent>(mark);
    SKEIN_CHECK(event && event->reached(), "the time of something that has not come yet");
    float ms = 0;
    cuda::check(cudaEventElapsedTime(&ms, first_->event(), event->event()), "the time of an event");
    const Time time = first_time_ + std::chrono::nanoseconds(
                                        static_cast<std::int64_t>(1e6 * static_cast<double>(ms)));
    if (ms > kLong) {
      first_ = event;
      first_time_ = time;
    }
    return time;
  }

 private:
  int device_;
  std::shared_ptr<const TimedEvent> first_;
  Time first_time_;
};

}  // namespace

std::unique_ptr<DeviceTimes> make_device_times(int device, const Clock& clock) {
  return std::make_unique<CudaTimes>(device, clock);
}

}  // namespace skein
