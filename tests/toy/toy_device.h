// A device without hardware: its queue is a thread that does the work later, and memory of it kills
// a process that touches it by itself. So a program that takes "ordered" for "complete" fails here.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <thread>

#include "core/queue.h"
#include "core/rng.h"
#include "kernels/device_kernels.h"

namespace skein::toy {

inline constexpr Device kDevice{Device::gpu, 3};

// Of the device's memory, as its own kernels see it; that of the host is itself.
Span inside(Span span);

// The values for a test that looks at them or sets them: waits until all queues have done their
// work.
std::span<float> floats_of(Span span);

class ToySharing;  // toy/toy_sharing.h

class ToyQueue final : public Queue, private DeviceKernels {
 public:
  // It dawdles, one time in so many, at moments that `seed` decides.
  explicit ToyQueue(std::uint64_t seed, std::uint64_t dawdles_one_in = 16);
  ~ToyQueue() override;

  Device device() const override { return kDevice; }
  DeviceKernels& kernels() override { return *this; }
  Mark record() override;
  void wait(const Mark& mark) override;
  void finish() override;
  std::unique_ptr<Memory> allocate(std::size_t count, Type type) override;
  Sharing* sharing() override;
  ToySharing& toy_sharing();

  void put(std::function<void()> work);

 private:
  void run();
  template <typename Work>
  Figure figure(Work work);

  void copy(Span dst, Span src) override;
  void copy_to_both(Span one, Span two, Span src) override;
  void copy_scaled(Span dst, float a, Span src) override;
  void fill(Span dst, float value) override;
  void scale(Span y, float a) override;
  void add(Span y, Span x) override;
  void axpy(Span y, float a, Span x) override;
  void raise_to(Span y, float least) override;
  void sum(Span dst, std::span<const Span> sources) override;
  void add_difference(Span x, Span a, Span s) override;
  void mix(Span x, Span y, float c, float s) override;
  Figure squared_norm(Span x) override;
  Figure squared_distance(Span x, Span y) override;
  Figure move_by_mean(Span x, float a, Span sum, Span s) override;
  Figure become_mean(Span x, float a, Span sum) override;
  void sgd_update(Span parameters, Span gradients, const SgdFactors& factors) override;
  void sgd_update(Span parameters, Span gradients, Span buffer, const SgdFactors& factors) override;
  void adamw_update(Span parameters, Span gradients, Span exp_avg, Span exp_avg_sq,
                    const AdamwFactors& factors) override;
  void to_bf16(Span packed, Span values) override;
  void from_bf16(Span values, Span packed) override;
  void add_bf16(Span values, Span packed) override;
  void round_to_bf16(Span values) override;
  void restore_rounded(Span values, Span exact) override;

  Rng rng_;
  std::uint64_t dawdles_one_in_;
  std::unique_ptr<ToySharing> sharing_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> work_;
  bool busy_ = false, stop_ = false;
  std::thread thread_;
};

}  // namespace skein::toy
