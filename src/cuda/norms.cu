// Figures over whole vectors: partial sums of a fixed number of blocks, then their sum.
#include <algorithm>

#include "cuda/pass.cuh"

namespace skein::cuda {
namespace {

// Adds up the threads' values in an order that is always the same. Thread 0 has the result.
__device__ double added_up(double value) {
  __shared__ double all[kThreads];
  all[threadIdx.x] = value;
  __syncthreads();
  for (unsigned width = kThreads / 2; width > 0; width /= 2) {
    if (threadIdx.x < width) all[threadIdx.x] += all[threadIdx.x + width];
    __syncthreads();
  }
  return all[0];
}

// `each(v)` returns what is to be squared and may change values that are written.
template <int Vectors, unsigned Reads, unsigned Writes, typename Each>
__global__ void __launch_bounds__(kThreads)
    partial_kernel(Pointers<Vectors> at, std::size_t count, bool aligned, double* partial,
                   Each each) {
  double total = 0;
  const auto square = [&](float* v) {
    const double value = each(v);
    total += value * value;
  };
  const std::size_t thread = std::size_t{blockIdx.x} * kThreads + threadIdx.x;
  const std::size_t threads = std::size_t{gridDim.x} * kThreads;
  const std::size_t fours = count / 4;
  for (std::size_t i = thread; i < fours; i += threads) {
    if (aligned) {
      four<Vectors, Reads, Writes>(at, i, square);
    } else {
      for (std::size_t lane = 0; lane < 4; ++lane)
        one<Vectors, Reads, Writes>(at, 4 * i + lane, square);
    }
  }
  for (std::size_t i = 4 * fours + thread; i < count; i += threads)
    one<Vectors, Reads, Writes>(at, i, square);
  const double sum = added_up(total);
  if (threadIdx.x == 0) partial[blockIdx.x] = sum;
}

__global__ void __launch_bounds__(kThreads)
    total_kernel(const double* partial, unsigned count, double* result) {
  double total = 0;
  for (unsigned i = threadIdx.x; i < count; i += kThreads) total += partial[i];
  const double sum = added_up(total);
  if (threadIdx.x == 0) *result = sum;
}

template <unsigned Reads, unsigned Writes, int Vectors, typename Each>
void norm(const Pointers<Vectors>& at, std::size_t count, NormPlaces places, cudaStream_t stream,
          Each each) {
  constexpr std::size_t kOfABlock = 16 * kThreads;
  const auto blocks = static_cast<unsigned>(
      std::clamp<std::size_t>((count + kOfABlock - 1) / kOfABlock, 1, kPartialSums));
  partial_kernel<Vectors, Reads, Writes>
      <<<blocks, kThreads, 0, stream>>>(at, count, at.aligned(), places.scratch, each);
  total_kernel<<<1, kThreads, 0, stream>>>(places.scratch, blocks, places.result);
}

}  // namespace

void squared_norm(const float* x, std::size_t count, NormPlaces places, cudaStream_t stream) {
  norm<1, 0>(Pointers<1>{{mutable_of(x)}}, count, places, stream,
             [] __device__(float* v) { return static_cast<double>(v[0]); });
}

void squared_distance(const float* x, const float* y, std::size_t count, NormPlaces places,
                      cudaStream_t stream) {
  norm<3, 0>(
      Pointers<2>{{mutable_of(x), mutable_of(y)}}, count, places, stream,
      [] __device__(float* v) { return static_cast<double>(v[0]) - static_cast<double>(v[1]); });
}

void move_by_mean(float* x, float a, const float* sum, const float* s, std::size_t count,
                  NormPlaces places, cudaStream_t stream) {
  norm<7, 1>(Pointers<3>{{x, mutable_of(sum), mutable_of(s)}}, count, places, stream,
             [=] __device__(float* v) {
               const float mean = a * v[1], old = v[2];
               v[0] += mean - old;
               return static_cast<double>(old) - static_cast<double>(mean);
             });
}

void become_mean(float* x, float a, const float* sum, std::size_t count, NormPlaces places,
                 cudaStream_t stream) {
  norm<3, 1>(Pointers<2>{{x, mutable_of(sum)}}, count, places, stream, [=] __device__(float* v) {
    const float mean = a * v[1], old = v[0];
    v[0] = mean;
    return static_cast<double>(old) - static_cast<double>(mean);
  });
}

}  // namespace skein::cuda
