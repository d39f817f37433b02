#include "torch/late_number.h"

namespace skein {

LateNumber::LateNumber(const torch::Tensor& number) {
  const torch::NoGradGuard no_grad;
  const torch::Tensor value = number.detach().to(torch::kFloat64);
  if (value.is_cpu()) {
    value_ = value.item<double>();
    return;
  }
  host_ = torch::empty({1}, torch::TensorOptions(torch::kFloat64).pinned_memory(true));
  host_.copy_(value.reshape({1}), /*non_blocking=*/true);
  there_ = std::make_shared<StreamMark>(value.device());
}

double LateNumber::value() const {
  if (!host_.defined()) return value_;
  there_->finish();
  return host_.data_ptr<double>()[0];
}

}  // namespace skein
