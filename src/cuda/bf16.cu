// Values as bfloat16 on their way.
#include "cuda/pass.cuh"

namespace skein::cuda {
namespace {

// As in kernels/bf16.cpp.
__device__ std::uint32_t upper_half(float value) {
  const std::uint32_t bits = __float_as_uint(value);
  const std::uint32_t rounded = (bits + 0x7FFF + (bits >> 16 & 1)) >> 16;
  const std::uint32_t quiet = bits >> 16 | 0x40;
  return (bits & 0x7FFFFFFF) > 0x7F800000 ? quiet : rounded;
}

__device__ float widened(std::uint16_t half) {
  return __uint_as_float(static_cast<std::uint32_t>(half) << 16);
}

// each(value, half) for every pair: values are read if `Read`; which of both is written is said by
// the last two.
template <bool ReadValues, bool WritesValues, typename Each>
__global__ void __launch_bounds__(kThreads)
    half_kernel(float* values, std::uint16_t* packed, std::size_t count, bool aligned, Each each) {
  const std::size_t thread = std::size_t{blockIdx.x} * kThreads + threadIdx.x;
  const std::size_t fours = aligned ? count / 4 : 0;
  if (thread < fours) {
    float4 v{};
    ushort4 h{};
    if (ReadValues) v = reinterpret_cast<const float4*>(values)[thread];
    if (WritesValues) h = reinterpret_cast<const ushort4*>(packed)[thread];
    each(v.x, h.x);
    each(v.y, h.y);
    each(v.z, h.z);
    each(v.w, h.w);
    if (WritesValues)
      reinterpret_cast<float4*>(values)[thread] = v;
    else
      reinterpret_cast<ushort4*>(packed)[thread] = h;
    return;
  }
  const std::size_t i = 4 * fours + (thread - fours);
  if (i >= count) return;
  float v = ReadValues ? values[i] : 0;
  std::uint16_t h = WritesValues ? packed[i] : std::uint16_t{0};
  each(v, h);
  if (WritesValues)
    values[i] = v;
  else
    packed[i] = h;
}

template <bool ReadValues, bool WritesValues, typename Each>
void half_pass(float* values, std::uint16_t* packed, std::size_t count, cudaStream_t stream,
               Each each) {
  if (count == 0) return;
  const bool aligned = reinterpret_cast<std::uintptr_t>(values) % sizeof(float4) == 0 &&
                       reinterpret_cast<std::uintptr_t>(packed) % sizeof(ushort4) == 0;
  const std::size_t threads = aligned ? count / 4 + count % 4 : count;
  const auto blocks = static_cast<unsigned>((threads + kThreads - 1) / kThreads);
  half_kernel<ReadValues, WritesValues>
      <<<blocks, kThreads, 0, stream>>>(values, packed, count, aligned, each);
}

}  // namespace

void to_bf16(std::uint16_t* packed, const float* values, std::size_t count, cudaStream_t stream) {
  half_pass<true, false>(
      mutable_of(values), packed, count, stream,
      [] __device__(float v, std::uint16_t& h) { h = static_cast<std::uint16_t>(upper_half(v)); });
}

void from_bf16(float* values, const std::uint16_t* packed, std::size_t count, cudaStream_t stream) {
  half_pass<false, true>(values, const_cast<std::uint16_t*>(packed), count, stream,
                         [] __device__(float& v, std::uint16_t h) { v = widened(h); });
}

void add_bf16(float* values, const std::uint16_t* packed, std::size_t count, cudaStream_t stream) {
  half_pass<true, true>(values, const_cast<std::uint16_t*>(packed), count, stream,
                        [] __device__(float& v, std::uint16_t h) { v += widened(h); });
}

void round_to_bf16(float* values, std::size_t count, cudaStream_t stream) {
  pass<1, 1>(Pointers<1>{{values}}, count, stream,
             [] __device__(float* v) { v[0] = __uint_as_float(upper_half(v[0]) << 16); });
}

void restore_rounded(float* values, const float* exact, std::size_t count, cudaStream_t stream) {
  pass<3, 1>(Pointers<2>{{values, mutable_of(exact)}}, count, stream, [] __device__(float* v) {
    if (__float_as_uint(v[0]) == upper_half(v[1]) << 16) v[0] = v[1];
  });
}

}  // namespace skein::cuda
