#include "kernels/update.h"

#include <cmath>

#include "kernels/clones.h"
#include "kernels/operands.h"
#include "kernels/threads.h"

namespace skein {
namespace {

SKEIN_CLONES void sgd_loop(float* __restrict p, float* __restrict g, SgdFactors f,
                           std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) {
    const float gradient = g[i] * f.gradient_scale + f.weight_decay * p[i];
    p[i] -= f.learning_rate * gradient;
    g[i] = 0;
  }
}

SKEIN_CLONES void momentum_loop(float* __restrict p, float* __restrict g, float* __restrict b,
                                SgdFactors f, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) {
    const float gradient = g[i] * f.gradient_scale + f.weight_decay * p[i];
    b[i] = f.momentum * b[i] + gradient;
    p[i] -= f.learning_rate * b[i];
    g[i] = 0;
  }
}

SKEIN_CLONES void nesterov_loop(float* __restrict p, float* __restrict g, float* __restrict b,
                                SgdFactors f, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) {
    const float gradient = g[i] * f.gradient_scale + f.weight_decay * p[i];
    b[i] = f.momentum * b[i] + gradient;
    p[i] -= f.learning_rate * (gradient + f.momentum * b[i]);
    g[i] = 0;
  }
}

SKEIN_CLONES void adamw_loop(float* __restrict p, float* __restrict g, float* __restrict m,
                             float* __restrict v, AdamwFactors f, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) {
    const float gradient = g[i] * f.gradient_scale;
    m[i] = f.beta1 * m[i] + f.one_minus_beta1 * gradient;
    v[i] = f.beta2 * v[i] + f.one_minus_beta2 * gradient * gradient;
    const float denominator = std::sqrt(v[i]) / f.correction2_root + f.epsilon;
    p[i] = p[i] * f.decay - f.step_size * m[i] / denominator;
    g[i] = 0;
  }
}

}  // namespace

void sgd_update(Span parameters, Span gradients, const SgdFactors& factors) {
  check_operands(Type::f32, parameters, gradients);
  if (DeviceKernels* const device = device_of(parameters))
    return device->sgd_update(parameters, gradients, factors);
  parallel(host_count(parameters), [=](Range part) {
    sgd_loop(floats(parameters) + part.offset, floats(gradients) + part.offset, factors,
             part.count);
  });
}

void sgd_update(Span parameters, Span gradients, Span buffer, const SgdFactors& factors) {
  check_operands(Type::f32, parameters, gradients, buffer);
  if (DeviceKernels* const device = device_of(parameters))
    return device->sgd_update(parameters, gradients, buffer, factors);
  const auto loop = factors.nesterov ? nesterov_loop : momentum_loop;
  parallel(host_count(parameters), [=](Range part) {
    loop(floats(parameters) + part.offset, floats(gradients) + part.offset,
         floats(buffer) + part.offset, factors, part.count);
  });
}

void adamw_update(Span parameters, Span gradients, Span exp_avg, Span exp_avg_sq,
                  const AdamwFactors& factors) {
  check_operands(Type::f32, parameters, gradients, exp_avg, exp_avg_sq);
  if (DeviceKernels* const device = device_of(parameters))
    return device->adamw_update(parameters, gradients, exp_avg, exp_avg_sq, factors);
  parallel(host_count(parameters), [=](Range part) {
    adamw_loop(floats(parameters) + part.offset, floats(gradients) + part.offset,
               floats(exp_avg) + part.offset, floats(exp_avg_sq) + part.offset, factors,
               part.count);
  });
}

}  // namespace skein
