// The vector operations, put on a CUDA stream.
#pragma once

#include "cuda/cuda_queue.h"
#include "cuda/passes.h"
#include "kernels/device_kernels.h"

namespace skein::cuda {

class CudaKernels final : public DeviceKernels {
 public:
  explicit CudaKernels(CudaQueue& queue);
  ~CudaKernels() override;

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

 private:
  template <typename Put>
  void put(const char* what, Put put_on);
  template <typename Put>
  Figure figure(const char* what, Put put_on);

  CudaQueue& queue_;
  int device_;
  double* scratch_ = nullptr;  // of norms, one at a time in the stream's order
  std::shared_ptr<FigurePool> figures_ = std::make_shared<FigurePool>();
};

}  // namespace skein::cuda
