// The optimizers' arithmetic: parameters, state and gradient in one pass, and the gradient left
// zero.
//
// Operation for operation what torch::optim computes in float32, without fused multiply-add.
// Spans are as in kernels.h: equal counts, not overlapping.
#pragma once

#include "core/span.h"

namespace skein {

struct SgdFactors {
  float learning_rate = 0;
  float momentum = 0;
  float weight_decay = 0;
  float gradient_scale = 1;
  bool nesterov = false;
};

// g = gradient_scale · gradient + weight_decay · p;  p −= learning_rate · g. Ignores momentum.
void sgd_update(Span parameters, Span gradients, const SgdFactors& factors);

// As above with b = momentum · b + g in between, and b (Nesterov: g + momentum · b) in g's place.
void sgd_update(Span parameters, Span gradients, Span buffer, const SgdFactors& factors);

struct AdamwFactors {
  float gradient_scale = 1;
  float decay = 1;  // 1 − learning rate · weight decay
  float beta1 = 0, one_minus_beta1 = 1;
  float beta2 = 0, one_minus_beta2 = 1;
  float correction2_root = 1;  // √(1 − β2^step)
  float epsilon = 0;
  float step_size = 0;  // learning rate / (1 − β1^step)
};

// p *= decay;  m = β1 m + (1 − β1) g;  v = β2 v + (1 − β2) g²;
// p −= step_size · m / (√v / correction2_root + ε).
void adamw_update(Span parameters, Span gradients, Span exp_avg, Span exp_avg_sq,
                  const AdamwFactors& factors);

}  // namespace skein
