#include "cuda/pass.cuh"

namespace skein::cuda {

void fill(float* dst, float value, std::size_t count, cudaStream_t stream) {
  pass<0, 1>(Pointers<1>{{dst}}, count, stream, [=] __device__(float* v) { v[0] = value; });
}

void copy_scaled(float* dst, float a, const float* src, std::size_t count, cudaStream_t stream) {
  pass<2, 1>(Pointers<2>{{dst, mutable_of(src)}}, count, stream,
             [=] __device__(float* v) { v[0] = a * v[1]; });
}

void scale(float* y, float a, std::size_t count, cudaStream_t stream) {
  pass<1, 1>(Pointers<1>{{y}}, count, stream, [=] __device__(float* v) { v[0] *= a; });
}

void add(float* y, const float* x, std::size_t count, cudaStream_t stream) {
  pass<3, 1>(Pointers<2>{{y, mutable_of(x)}}, count, stream,
             [] __device__(float* v) { v[0] += v[1]; });
}

void axpy(float* y, float a, const float* x, std::size_t count, cudaStream_t stream) {
  pass<3, 1>(Pointers<2>{{y, mutable_of(x)}}, count, stream,
             [=] __device__(float* v) { v[0] += a * v[1]; });
}

void raise_to(float* y, float least, std::size_t count, cudaStream_t stream) {
  pass<1, 1>(Pointers<1>{{y}}, count, stream,
             [=] __device__(float* v) { v[0] = v[0] < least ? least : v[0]; });
}

void add_difference(float* x, const float* a, const float* s, std::size_t count,
                    cudaStream_t stream) {
  pass<7, 1>(Pointers<3>{{x, mutable_of(a), mutable_of(s)}}, count, stream,
             [] __device__(float* v) { v[0] += v[1] - v[2]; });
}

void mix(float* x, float* y, float c, float s, std::size_t count, cudaStream_t stream) {
  pass<3, 3>(Pointers<2>{{x, y}}, count, stream, [=] __device__(float* v) {
    const float old_x = v[0], old_y = v[1];
    v[0] = c * old_x + s * old_y;
    v[1] = s * old_x + c * old_y;
  });
}

void copy_to_both(float* one, float* two, const float* src, std::size_t count,
                  cudaStream_t stream) {
  pass<4, 3>(Pointers<3>{{one, two, mutable_of(src)}}, count, stream,
             [] __device__(float* v) { v[0] = v[1] = v[2]; });
}

namespace {

// dst and sources; dst is written only.
template <int Sources>
void sum_of(float* dst, const float* const* sources, std::size_t count, cudaStream_t stream) {
  Pointers<Sources + 1> at;
  at.of[0] = dst;
  for (int k = 0; k < Sources; ++k) at.of[k + 1] = mutable_of(sources[k]);
  constexpr unsigned kAll = (1U << (Sources + 1)) - 2;
  pass<kAll, 1>(at, count, stream, [] __device__(float* v) {
    float total = v[1];
#pragma unroll
    for (int k = 1; k < Sources; ++k) total += v[k + 1];
    v[0] = total;
  });
}

template <int... Counts>
void sum_of_any(float* dst, const float* const* sources, std::size_t source_count,
                std::size_t count, cudaStream_t stream) {
  static_cast<void>(
      ((source_count == Counts && (sum_of<Counts>(dst, sources, count, stream), true)) || ...));
}

}  // namespace

void sum(float* dst, const float* const* sources, std::size_t source_count, std::size_t count,
         cudaStream_t stream) {
  sum_of_any<1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16>(dst, sources, source_count,
                                                                    count, stream);
}

void sgd_update(SgdKind kind, float* p, float* g, float* buffer, Sgd f, std::size_t count,
                cudaStream_t stream) {
  if (kind == SgdKind::plain)
    return pass<3, 3>(Pointers<2>{{p, g}}, count, stream, [=] __device__(float* v) {
      const float gradient = v[1] * f.gradient_scale + f.weight_decay * v[0];
      v[0] -= f.learning_rate * gradient;
      v[1] = 0;
    });
  if (kind == SgdKind::momentum)
    return pass<7, 7>(Pointers<3>{{p, g, buffer}}, count, stream, [=] __device__(float* v) {
      const float gradient = v[1] * f.gradient_scale + f.weight_decay * v[0];
      v[2] = f.momentum * v[2] + gradient;
      v[0] -= f.learning_rate * v[2];
      v[1] = 0;
    });
  pass<7, 7>(Pointers<3>{{p, g, buffer}}, count, stream, [=] __device__(float* v) {
    const float gradient = v[1] * f.gradient_scale + f.weight_decay * v[0];
    v[2] = f.momentum * v[2] + gradient;
    v[0] -= f.learning_rate * (gradient + f.momentum * v[2]);
    v[1] = 0;
  });
}

void adamw_update(float* p, float* g, float* m, float* v, Adamw f, std::size_t count,
                  cudaStream_t stream) {
  pass<15, 15>(Pointers<4>{{p, g, m, v}}, count, stream, [=] __device__(float* x) {
    const float gradient = x[1] * f.gradient_scale;
    x[2] = f.beta1 * x[2] + f.one_minus_beta1 * gradient;
    x[3] = f.beta2 * x[3] + f.one_minus_beta2 * gradient * gradient;
    const float denominator = sqrtf(x[3]) / f.correction2_root + f.epsilon;
    x[0] = x[0] * f.decay - f.step_size * x[2] / denominator;
    x[1] = 0;
  });
}

}  // namespace skein::cuda
