// NVIDIA GPUs: what there is, and queues on them. Includes nothing of CUDA, so that anybody may
// ask.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "core/clock.h"
#include "core/queue.h"

namespace skein {

struct CudaDevice {
  int index = 0;
  std::string name;
  std::size_t memory = 0, free = 0;  // bytes
};

// Why no GPU can be used: this build has no CUDA, there is no driver, it sees no device. Empty
// where one can. Initialises the driver: a process that forks afterwards has no CUDA in its
// children.
std::string why_no_cuda();

// Whether this build has CUDA at all. Asks no driver.
bool built_with_cuda();

// None where there is a reason for that.
std::vector<CudaDevice> cuda_devices();

// What is taken of a device's memory, by whomever; 0 where there is no CUDA. Touches no other
// device. From any thread.
std::size_t cuda_memory_in_use(int device);

// A queue on a stream of its own, which does not wait for the default stream and comes first where
// the device has a choice. Throws ConfigError where there is no such device.
std::unique_ptr<Queue> make_cuda_queue(int device);

// The stream (a cudaStream_t) of a queue that make_cuda_queue() made; aborts for another.
void* stream_of(Queue& queue);

// Makes a device the calling thread's for as long as the result lives.
std::shared_ptr<void> cuda_on_device(int device);

// Marks on a stream that is somebody else's: behind what is on it now, and what is put there from
// now on comes after `mark` (of any queue; null: nothing).
Mark record_on(int device, void* stream);
void wait_on(int device, void* stream, const Mark& mark);

// When a device came to marks, on a clock of the host: for traces. Not thread-safe.
class DeviceTimes {
 public:
  virtual ~DeviceTimes() = default;

  // A mark that has a time, on a stream of the device.
  virtual Mark record_on(void* stream) = 0;

  // The time of a mark of record_on() that is reached. In the order of the marks, as a rule.
  virtual Time when(const Mark& mark) = 0;
};

// Waits until the device has done what it has to do, to know the time there.
std::unique_ptr<DeviceTimes> make_device_times(int device, const Clock& clock);

}  // namespace skein
