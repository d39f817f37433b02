// Optimizers of a user's own.
#pragma once

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <cmath>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "skein/torch.h"

namespace skein::test {

struct MineOptions : torch::optim::OptimizerCloneableOptions<MineOptions> {
  explicit MineOptions(double lr) : lr(lr) {}
  double get_lr() const override { return lr; }
  void set_lr(const double value) override { lr = value; }
  double lr;
};

class Mine : public torch::optim::Optimizer {
 public:
  Mine(std::vector<torch::Tensor> parameters, const MineOptions& options)
      : Optimizer(std::move(parameters), std::make_unique<MineOptions>(options)) {}
  torch::Tensor step(LossClosure = nullptr) override {
    const torch::NoGradGuard no_grad;
    for (auto& group : param_groups())
      for (auto& each : group.params())
        if (each.grad().defined()) change(each, group.options().get_lr());
    return {};
  }

 protected:
  virtual void change(torch::Tensor& parameter, double rate) = 0;
};

class SignSgd final : public Mine {
  using Mine::Mine;
  void change(torch::Tensor& parameter, double rate) override {
    parameter.sub_(parameter.grad().sign(), rate);
  }
};

class Lion final : public Mine, public Elementwise {
 public:
  using Mine::Mine;
  std::map<std::string, torch::Tensor*> state_of(const torch::Tensor& parameter) override {
    return {{"exp_avg", &averages_[parameter.unsafeGetTensorImpl()]}};
  }

 private:
  void change(torch::Tensor& parameter, double rate) override {
    torch::Tensor& average = averages_[parameter.unsafeGetTensorImpl()];
    if (!average.defined()) average = torch::zeros_like(parameter);
    parameter.sub_((average * 0.9 + parameter.grad() * 0.1).sign_(), rate);
    average.mul_(0.99).add_(parameter.grad(), 0.01);
  }
  std::map<void*, torch::Tensor> averages_;
};

class Lamb final : public Mine {
  using Mine::Mine;
  void change(torch::Tensor& parameter, double rate) override {
    const auto ratio = parameter.norm() / (parameter.grad().norm() + 1e-6);
    parameter.sub_(parameter.grad() * ratio, rate);
  }
};

// Adam whose step of a tensor is as long as the tensor, times the rate.
class WholeLamb final : public Mine, public PerTensor {
 public:
  using Mine::Mine;
  std::map<std::string, torch::Tensor*> state_of(const torch::Tensor& parameter) override {
    State& state = states_[parameter.unsafeGetTensorImpl()];
    return {{"exp_avg", &state.mean}, {"exp_avg_sq", &state.square}};
  }
  void set_steps(std::int64_t steps) override { steps_ = steps; }
  torch::Tensor step(LossClosure closure = nullptr) override {
    ++steps_;
    return Mine::step(std::move(closure));
  }

 private:
  struct State {
    torch::Tensor mean, square;
  };
  void change(torch::Tensor& parameter, double rate) override {
    auto& [mean, square] = states_[parameter.unsafeGetTensorImpl()];
    if (!mean.defined()) mean = torch::zeros_like(parameter);
    if (!square.defined()) square = torch::zeros_like(parameter);
    EXPECT_EQ(mean.sizes(), parameter.sizes());
    const auto& gradient = parameter.grad();
    EXPECT_EQ(gradient.sizes(), parameter.sizes());
    mean.mul_(0.9).add_(gradient, 0.1);
    square.mul_(0.999).addcmul_(gradient, gradient, 0.001);
    const double first = 1 - std::pow(0.9, steps_), second = 1 - std::pow(0.999, steps_);
    const auto direction = (mean / first) / ((square / second).sqrt() + 1e-6);
    parameter.sub_(direction * (parameter.norm() / (direction.norm() + 1e-6)), rate);
  }
  std::map<void*, State> states_;
  std::int64_t steps_ = 0;
};

}  // namespace skein::test
