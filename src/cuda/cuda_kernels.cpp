#include "cuda/cuda_kernels.h"

#include <algorithm>
#include <array>

#include "kernels/operands.h"

namespace skein::cuda {
namespace {

std::uint16_t* halves(Span packed) { return static_cast<std::uint16_t*>(packed.data); }

Sgd plain(const SgdFactors& f) {
  return {f.learning_rate, f.momentum, f.weight_decay, f.gradient_scale};
}

}  // namespace

CudaKernels::CudaKernels(CudaQueue& queue) : queue_(queue), device_(queue.device().index) {
  const OnDevice scope(device_);
  void* scratch = nullptr;
  check(cudaMalloc(&scratch, kPartialSums * sizeof(double)), "memory for partial sums");
  scratch_ = static_cast<double*>(scratch);
}

CudaKernels::~CudaKernels() { static_cast<void>(cudaFree(scratch_)); }

template <typename Put>
void CudaKernels::put(const char* what, Put put_on) {
  const OnDevice scope(device_);
  put_on(queue_.stream());
  check(cudaPeekAtLastError(), what);
}

// A place that is given back before the device has written it is used again in the stream's order.
template <typename Put>
Figure CudaKernels::figure(const char* what, Put put_on) {
  std::shared_ptr<const double> place(figures_->take(), [pool = figures_](const double* its) {
    pool->give_back(const_cast<double*>(its));
  });
  put(what, [&](cudaStream_t stream) {
    put_on(NormPlaces{scratch_, const_cast<double*>(place.get())}, stream);
  });
  return {place, queue_.record()};
}

void CudaKernels::copy(Span dst, Span src) {
  if (dst.count == 0) return;
  put("copy", [&](cudaStream_t stream) {
    check(cudaMemcpyAsync(dst.data, src.data, dst.bytes(), cudaMemcpyDefault, stream), "copy");
  });
}

void CudaKernels::copy_to_both(Span one, Span two, Span src) {
  put("copy_to_both", [&](cudaStream_t stream) {
    cuda::copy_to_both(floats(one), floats(two), floats(src), src.count, stream);
  });
}

void CudaKernels::copy_scaled(Span dst, float a, Span src) {
  put("copy_scaled", [&](cudaStream_t stream) {
    cuda::copy_scaled(floats(dst), a, floats(src), dst.count, stream);
  });
}

void CudaKernels::fill(Span dst, float value) {
  put("fill", [&](cudaStream_t stream) { cuda::fill(floats(dst), value, dst.count, stream); });
}

void CudaKernels::scale(Span y, float a) {
  put("scale", [&](cudaStream_t stream) { cuda::scale(floats(y), a, y.count, stream); });
}

void CudaKernels::add(Span y, Span x) {
  put("add", [&](cudaStream_t stream) { cuda::add(floats(y), floats(x), y.count, stream); });
}

void CudaKernels::axpy(Span y, float a, Span x) {
  put("axpy", [&](cudaStream_t stream) { cuda::axpy(floats(y), a, floats(x), y.count, stream); });
}

void CudaKernels::raise_to(Span y, float least) {
  put("raise_to", [&](cudaStream_t stream) { cuda::raise_to(floats(y), least, y.count, stream); });
}

// Of more than fit one kernel the sum so far is the first source of the next; apart, since dst may
// be a source whose turn comes later.
void CudaKernels::sum(Span dst, std::span<const Span> sources) {
  std::array<const float*, kMostSources> at;
  std::unique_ptr<Memory> apart;
  if (sources.size() > kMostSources) apart = queue_.allocate(dst.count, dst.type);
  for (std::size_t next = 0; next < sources.size();) {
    std::size_t count = 0;
    if (next > 0) at[count++] = floats(apart->span());
    while (count < kMostSources && next < sources.size()) at[count++] = floats(sources[next++]);
    const Span into = next == sources.size() ? dst : apart->span();
    put("sum",
        [&](cudaStream_t stream) { cuda::sum(floats(into), at.data(), count, dst.count, stream); });
  }
}

void CudaKernels::add_difference(Span x, Span a, Span s) {
  put("add_difference", [&](cudaStream_t stream) {
    cuda::add_difference(floats(x), floats(a), floats(s), x.count, stream);
  });
}

void CudaKernels::mix(Span x, Span y, float c, float s) {
  put("mix", [&](cudaStream_t stream) { cuda::mix(floats(x), floats(y), c, s, x.count, stream); });
}

Figure CudaKernels::squared_norm(Span x) {
  return figure("squared_norm", [&](NormPlaces places, cudaStream_t stream) {
    cuda::squared_norm(floats(x), x.count, places, stream);
  });
}

Figure CudaKernels::squared_distance(Span x, Span y) {
  return figure("squared_distance", [&](NormPlaces places, cudaStream_t stream) {
    cuda::squared_distance(floats(x), floats(y), x.count, places, stream);
  });
}

Figure CudaKernels::move_by_mean(Span x, float a, Span sum, Span s) {
  return figure("move_by_mean", [&](NormPlaces places, cudaStream_t stream) {
    cuda::move_by_mean(floats(x), a, floats(sum), floats(s), x.count, places, stream);
  });
}

Figure CudaKernels::become_mean(Span x, float a, Span sum) {
  return figure("become_mean", [&](NormPlaces places, cudaStream_t stream) {
    cuda::become_mean(floats(x), a, floats(sum), x.count, places, stream);
  });
}

void CudaKernels::sgd_update(Span parameters, Span gradients, const SgdFactors& factors) {
  put("sgd_update", [&](cudaStream_t stream) {
    cuda::sgd_update(SgdKind::plain, floats(parameters), floats(gradients), nullptr, plain(factors),
                     parameters.count, stream);
  });
}

void CudaKernels::sgd_update(Span parameters, Span gradients, Span buffer,
                             const SgdFactors& factors) {
  put("sgd_update", [&](cudaStream_t stream) {
    cuda::sgd_update(factors.nesterov ? SgdKind::nesterov : SgdKind::momentum, floats(parameters),
                     floats(gradients), floats(buffer), plain(factors), parameters.count, stream);
  });
}

void CudaKernels::adamw_update(Span parameters, Span gradients, Span exp_avg, Span exp_avg_sq,
                               const AdamwFactors& f) {
  put("adamw_update", [&](cudaStream_t stream) {
    cuda::adamw_update(floats(parameters), floats(gradients), floats(exp_avg), floats(exp_avg_sq),
                       {f.gradient_scale, f.decay, f.beta1, f.one_minus_beta1, f.beta2,
                        f.one_minus_beta2, f.correction2_root, f.epsilon, f.step_size},
                       parameters.count, stream);
  });
}

void CudaKernels::to_bf16(Span packed, Span values) {
  put("to_bf16", [&](cudaStream_t stream) {
    cuda::to_bf16(halves(packed), floats(values), values.count, stream);
  });
}

void CudaKernels::from_bf16(Span values, Span packed) {
  put("from_bf16", [&](cudaStream_t stream) {
    cuda::from_bf16(floats(values), halves(packed), values.count, stream);
  });
}

void CudaKernels::add_bf16(Span values, Span packed) {
  put("add_bf16", [&](cudaStream_t stream) {
    cuda::add_bf16(floats(values), halves(packed), values.count, stream);
  });
}

void CudaKernels::round_to_bf16(Span values) {
  put("round_to_bf16",
      [&](cudaStream_t stream) { cuda::round_to_bf16(floats(values), values.count, stream); });
}

void CudaKernels::restore_rounded(Span values, Span exact) {
  put("restore_rounded", [&](cudaStream_t stream) {
    cuda::restore_rounded(floats(values), floats(exact), values.count, stream);
  });
}

}  // namespace skein::cuda
