#include "train/batch_norm.h"

#include <algorithm>
#include <type_traits>

#include "core/rng.h"
#include "plan/sampler.h"

namespace skein {
namespace {

// Calls visit(module) for every batch norm of the model.
template <typename Visit>
void for_batch_norms(const Model& model, Visit visit) {
  for (const auto& module : model.modules(false)) {
    if (auto* one = module->as<torch::nn::BatchNorm1dImpl>()) visit(*one);
    if (auto* two = module->as<torch::nn::BatchNorm2dImpl>()) visit(*two);
    if (auto* three = module->as<torch::nn::BatchNorm3dImpl>()) visit(*three);
  }
}

// For as long as it lives statistics start anew and every batch weighs the same.
class FromScratch {
 public:
  FromScratch(const Model& model, torch::Device device)
      : model_(model), generator_(generator_of(device)), state_(generator_.get_state()) {
    for (const torch::Tensor& live : model.buffers())
      kept_.push_back({live, live.detach().clone()});
    for_batch_norms(model, [this](auto& norm) {
      options_.push_back(norm.options);
      norm.options.momentum(Momentum());
      norm.reset_running_stats();
    });
  }
  ~FromScratch() {
    auto options = options_.begin();
    for_batch_norms(model_, [&](auto& norm) { norm.options = *options++; });
    for (auto& [live, kept] : kept_) live.detach().copy_(kept);
    generator_.set_state(state_);
  }
  FromScratch(const FromScratch&) = delete;
  FromScratch& operator=(const FromScratch&) = delete;

 private:
  // Torch's optional, empty: the mean of all batches.
  using Momentum = std::decay_t<decltype(torch::nn::BatchNormOptions(1).momentum())>;

  const Model& model_;
  at::Generator generator_;
  torch::Tensor state_;  // of it
  std::vector<std::pair<torch::Tensor, torch::Tensor>> kept_;
  std::vector<torch::nn::BatchNormOptions> options_;
};

}  // namespace

bool has_batch_norm(const Model& model) {
  bool found = false;
  for_batch_norms(model, [&](auto&) { found = true; });
  return found;
}

std::vector<NamedTensor> fresh_buffers(Distributed& run, Model& model, const Compute& compute,
                                       const Dataset& train, const FreshStatistics& how) {
  const torch::NoGradGuard no_grad;
  const FromScratch fresh(model, compute.device());
  const Autocast precision = compute.autocast();
  const std::int64_t batch = std::min(how.batch, train.size());
  GlobalBatches batches(static_cast<std::uint32_t>(train.size()), batch,
                        Rng(how.seed).split(0x626e)());
  // A worker's batches follow those of the ranks before it. Short ones would weigh too much.
  model.train();
  for (std::int64_t number = 0; number < (run.world().rank() + 1) * how.batches;) {
    const auto indices = batches.next();
    if (std::ssize(indices) < batch) continue;
    if (number++ >= run.world().rank() * how.batches)
      model.forward(compute.upload().bring(train.get(indices)).data);
  }
  return TrainAccess(run).averaged_buffers();
}

}  // namespace skein
