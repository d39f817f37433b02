// The kernels, as functions that put them on a stream. Vectors have `count` elements each and do
// not overlap unless said otherwise. Plain types only: the compiler of CUDA reads this.
//
// The arithmetic is that of kernels/kernels.cpp, update.cpp and bf16.cpp operation for operation,
// without fused multiply-add: the same bits, but for norms, which are added up in another order (a
// fixed one, which depends on the count alone).
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

namespace skein::cuda {

void fill(float* dst, float value, std::size_t count, cudaStream_t stream);
void copy_scaled(float* dst, float a, const float* src, std::size_t count, cudaStream_t stream);
void scale(float* y, float a, std::size_t count, cudaStream_t stream);
void add(float* y, const float* x, std::size_t count, cudaStream_t stream);
void axpy(float* y, float a, const float* x, std::size_t count, cudaStream_t stream);
void raise_to(float* y, float least, std::size_t count, cudaStream_t stream);
void add_difference(float* x, const float* a, const float* s, std::size_t count,
                    cudaStream_t stream);
void mix(float* x, float* y, float c, float s, std::size_t count, cudaStream_t stream);
void copy_to_both(float* one, float* two, const float* src, std::size_t count, cudaStream_t stream);

// At most kMostSources; dst may be one of them.
inline constexpr std::size_t kMostSources = 16;
void sum(float* dst, const float* const* sources, std::size_t source_count, std::size_t count,
         cudaStream_t stream);

// How many partial sums a norm has at most: the room it needs in `scratch`. The result goes to
// `result`, which may be memory of the host that the device can write.
inline constexpr std::size_t kPartialSums = 1024;
struct NormPlaces {
  double* scratch;
  double* result;
};
void squared_norm(const float* x, std::size_t count, NormPlaces places, cudaStream_t stream);
void squared_distance(const float* x, const float* y, std::size_t count, NormPlaces places,
                      cudaStream_t stream);
void move_by_mean(float* x, float a, const float* sum, const float* s, std::size_t count,
                  NormPlaces places, cudaStream_t stream);
void become_mean(float* x, float a, const float* sum, std::size_t count, NormPlaces places,
                 cudaStream_t stream);

// As SgdFactors and AdamwFactors of kernels/update.h.
struct Sgd {
  float learning_rate, momentum, weight_decay, gradient_scale;
};
enum class SgdKind { plain, momentum, nesterov };
void sgd_update(SgdKind kind, float* p, float* g, float* buffer, Sgd factors, std::size_t count,
                cudaStream_t stream);

struct Adamw {
  float gradient_scale, decay, beta1, one_minus_beta1, beta2, one_minus_beta2, correction2_root,
      epsilon, step_size;
};
void adamw_update(float* p, float* g, float* m, float* v, Adamw factors, std::size_t count,
                  cudaStream_t stream);

void to_bf16(std::uint16_t* packed, const float* values, std::size_t count, cudaStream_t stream);
void from_bf16(float* values, const std::uint16_t* packed, std::size_t count, cudaStream_t stream);
void add_bf16(float* values, const std::uint16_t* packed, std::size_t count, cudaStream_t stream);
void round_to_bf16(float* values, std::size_t count, cudaStream_t stream);
void restore_rounded(float* values, const float* exact, std::size_t count, cudaStream_t stream);

}  // namespace skein::cuda
