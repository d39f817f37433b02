// The kernels of a device: those of kernels.h, update.h and bf16.h, put on one of its queues.
//
// Spans are checked already: of one count, on the queue's device and of the right type; copy()
// alone also goes between the device and the host.
#pragma once

#include <span>

#include "core/queue.h"
#include "kernels/update.h"

namespace skein {

class DeviceKernels {
 public:
  virtual ~DeviceKernels() = default;

  virtual void copy(Span dst, Span src) = 0;
  virtual void copy_to_both(Span one, Span two, Span src) = 0;
  virtual void copy_scaled(Span dst, float a, Span src) = 0;
  virtual void fill(Span dst, float value) = 0;
  virtual void scale(Span y, float a) = 0;
  virtual void add(Span y, Span x) = 0;
  virtual void axpy(Span y, float a, Span x) = 0;
  virtual void raise_to(Span y, float least) = 0;
  virtual void sum(Span dst, std::span<const Span> sources) = 0;
  virtual void add_difference(Span x, Span a, Span s) = 0;
  virtual void mix(Span x, Span y, float c, float s) = 0;

  virtual Figure squared_norm(Span x) = 0;
  virtual Figure squared_distance(Span x, Span y) = 0;
  virtual Figure move_by_mean(Span x, float a, Span sum, Span s) = 0;
  virtual Figure become_mean(Span x, float a, Span sum) = 0;

  virtual void sgd_update(Span parameters, Span gradients, const SgdFactors& factors) = 0;
  virtual void sgd_update(Span parameters, Span gradients, Span buffer,
                          const SgdFactors& factors) = 0;
  virtual void adamw_update(Span parameters, Span gradients, Span exp_avg, Span exp_avg_sq,
                            const AdamwFactors& factors) = 0;

  virtual void to_bf16(Span packed, Span values) = 0;
  virtual void from_bf16(Span values, Span packed) = 0;
  virtual void add_bf16(Span values, Span packed) = 0;
  virtual void round_to_bf16(Span values) = 0;
  virtual void restore_rounded(Span values, Span exact) = 0;
};

}  // namespace skein
