// What a device did when, in a trace: beside what the host did, which is ahead of it.
#pragma once

#include <deque>
#include <memory>
#include <string>

#include "core/trace.h"
#include "cuda/cuda.h"
#include "torch/torch_stream.h"

namespace skein {

// Spans whose ends are marks on streams; they go to the trace when the device has come to them.
// Members may be called from any thread, one at a time.
class DeviceTrace {
 public:
  DeviceTrace(Trace& trace, Device device)
      : trace_(trace), times_(make_device_times(device.index, SteadyClock())) {}

  // What is put on `stream` from begin() to end() is one span. A lane has one at a time: begin()
  // counts only the first time.
  void begin(Lane lane, void* stream) {
    Mark& mark = begun_[lane == Lane::device_sums];
    if (!mark) mark = times_->record_on(stream);
  }
  void end(Lane lane, void* stream, std::string name) {
    Mark& mark = begun_[lane == Lane::device_sums];
    if (mark)
      spans_.push_back(
          {lane, std::move(name), std::exchange(mark, nullptr), times_->record_on(stream)});
  }

  // Reports what the device has done.
  void report() {
    while (!spans_.empty() && reached(spans_.front().end)) {
      const Timed& next = spans_.front();
      trace_.span(next.lane, next.name, times_->when(next.begin), times_->when(next.end));
      spans_.pop_front();
    }
  }

 private:
  struct Timed {
    Lane lane;
    std::string name;
    Mark begin, end;
  };

  Trace& trace_;
  std::unique_ptr<DeviceTimes> times_;
  Mark begun_[2];
  std::deque<Timed> spans_;
};

}  // namespace skein
