// One pass over a few vectors of floats: four values at a time where they are aligned for it.
#pragma once

#include <cstddef>
#include <cstdint>

#include "cuda/passes.h"

namespace skein::cuda {

inline constexpr unsigned kThreads = 256;

// `Vectors` pointers of one pass. Bit i of `Reads` and of `Writes`: vector i is read, is written.
template <int Vectors>
struct Pointers {
  float* of[Vectors];

  bool aligned() const {
    for (int i = 0; i < Vectors; ++i)
      if (reinterpret_cast<std::uintptr_t>(of[i]) % sizeof(float4) != 0) return false;
    return true;
  }
};

template <int Vectors, unsigned Reads, unsigned Writes, typename Each>
__device__ void one(const Pointers<Vectors>& at, std::size_t i, Each each) {
  float v[Vectors];
#pragma unroll
  for (int k = 0; k < Vectors; ++k)
    if (Reads >> k & 1) v[k] = at.of[k][i];
  each(v);
#pragma unroll
  for (int k = 0; k < Vectors; ++k)
    if (Writes >> k & 1) at.of[k][i] = v[k];
}

template <int Vectors, unsigned Reads, unsigned Writes, typename Each>
__device__ void four(const Pointers<Vectors>& at, std::size_t i, Each each) {
  float4 loaded[Vectors];
#pragma unroll
  for (int k = 0; k < Vectors; ++k)
    if (Reads >> k & 1) loaded[k] = reinterpret_cast<const float4*>(at.of[k])[i];
  float v[4][Vectors];
#pragma unroll
  for (int k = 0; k < Vectors; ++k) {
    v[0][k] = loaded[k].x;
    v[1][k] = loaded[k].y;
    v[2][k] = loaded[k].z;
    v[3][k] = loaded[k].w;
  }
#pragma unroll
  for (int lane = 0; lane < 4; ++lane) each(v[lane]);
#pragma unroll
  for (int k = 0; k < Vectors; ++k)
    if (Writes >> k & 1)
      reinterpret_cast<float4*>(at.of[k])[i] = make_float4(v[0][k], v[1][k], v[2][k], v[3][k]);
}

// A thread has four values, or one where vectors are not aligned; the last ones are done one by
// one.
template <int Vectors, unsigned Reads, unsigned Writes, typename Each>
__global__ void __launch_bounds__(kThreads)
    pass_kernel(Pointers<Vectors> at, std::size_t count, bool aligned, Each each) {
  const std::size_t thread = std::size_t{blockIdx.x} * kThreads + threadIdx.x;
  if (!aligned) {
    if (thread < count) one<Vectors, Reads, Writes>(at, thread, each);
    return;
  }
  const std::size_t fours = count / 4;
  if (thread < fours)
    four<Vectors, Reads, Writes>(at, thread, each);
  else if (thread < fours + count % 4)
    one<Vectors, Reads, Writes>(at, fours * 4 + (thread - fours), each);
}

template <unsigned Reads, unsigned Writes, int Vectors, typename Each>
void pass(const Pointers<Vectors>& at, std::size_t count, cudaStream_t stream, Each each) {
  if (count == 0) return;
  const bool aligned = at.aligned();
  const std::size_t threads = aligned ? count / 4 + count % 4 : count;
  const auto blocks = static_cast<unsigned>((threads + kThreads - 1) / kThreads);
  pass_kernel<Vectors, Reads, Writes><<<blocks, kThreads, 0, stream>>>(at, count, aligned, each);
}

inline float* mutable_of(const float* x) { return const_cast<float*>(x); }

}  // namespace skein::cuda
