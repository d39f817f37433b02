// The model that should be judged or given away: averaged over workers, and perhaps over time.
#include <ATen/record_function.h>
#include <fmt/format.h>

#include <algorithm>
#include <exception>

#include "torch/distributed_impl.h"
#include "torch/evaluation.h"
#include "torch/state_dict.h"

namespace skein {
namespace {

// Averages those tensors that are of double precision, or those that are not, as one flat tensor of
// type `type`.
void average(std::vector<NamedTensor>& tensors, torch::ScalarType type,
             const std::function<void(torch::Tensor& all)>& mean) {
  const auto belongs = [&](const torch::Tensor& tensor) {
    return (tensor.scalar_type() == torch::kFloat64) == (type == torch::kFloat64);
  };
  std::vector<torch::Tensor> flat;
  for (const NamedTensor& each : tensors)
    if (belongs(each.tensor)) flat.push_back(each.tensor.to(torch::kCPU, type).reshape({-1}));
  if (flat.empty()) return;
  torch::Tensor all = torch::cat(flat).contiguous();
  mean(all);
  std::int64_t offset = 0;
  for (NamedTensor& each : tensors) {
    if (!belongs(each.tensor)) continue;
    const std::int64_t count = each.tensor.numel();
    each.tensor.copy_(all.narrow(0, offset, count).view(each.tensor.sizes()));
    offset += count;
  }
}

}  // namespace

// Those of double precision travel as such; all others have room in a float.
void Distributed::Impl::average_over_workers(std::vector<NamedTensor>& tensors) {
  if (world_.size() == 1) return;
  average(tensors, torch::kFloat32, [this](torch::Tensor& all) {
    world_.impl().mean({all.data_ptr<float>(), static_cast<std::size_t>(all.numel())});
  });
  average(tensors, torch::kFloat64, [this](torch::Tensor& all) {
    double* first = all.data_ptr<double>();
    const std::vector<double> sums = world_.sum({first, first + all.numel()});
    std::copy(sums.begin(), sums.end(), first);
    const auto& present = world_.impl().present();
    all /= static_cast<double>(std::count(present.begin(), present.end(), true));
  });
}

std::vector<NamedTensor> Distributed::Impl::averaged_buffers() {
  const torch::NoGradGuard no_grad;
  std::vector<NamedTensor> result;
  for (const NamedTensor& each : binding_.float_buffers())
    result.push_back({each.name, each.tensor.detach().clone()});
  average_over_workers(result);
  for (const NamedTensor& each : binding_.integer_buffers()) {
    torch::Tensor copy = each.tensor.detach().clone();
    if (!strategy_->survives_losses()) broadcast(copy);  // rank 0 may be gone
    result.push_back({each.name, copy});
  }
  return result;
}

// Updates are made on the loop, those too that a worker makes while it waits in flush(): so equal
// models have equal averages, whatever steps each worker has made.
void Distributed::Impl::keep_ema(double decay) {
  if (!resumed_from_.empty())
    throw ConfigError(fmt::format(
        "keep_ema() came after resume(), which had no average to put that of {} into: call it "
        "before resume()",
        resumed_from_));
  auto ema = std::make_unique<WeightAverage>(binding_, decay, worker_.progress.steps);
  hand_over([&] {
    ema_ = std::move(ema);
    worker_.after_update = [this] {
      const at::DisableRecordFunctionGuard unobserved;  // it is no read by the model
      const TorchOnQueue scope(stream_.on_device() ? current_queue() : nullptr);
      ema_->see(worker_.progress.steps);
    };
  });
}

void Distributed::Impl::check_has(Weights weights) const {
  if (weights == Weights::ema && !ema_)
    throw ConfigError("Weights::ema: no average is kept; expected keep_ema(decay) before training");
}

std::vector<NamedTensor> Distributed::Impl::averaged_ema() {
  std::vector<NamedTensor> values = ema_->values();
  if (!strategy_->equal_replicas()) average_over_workers(values);
  return values;
}

std::vector<NamedTensor> Distributed::Impl::tensors_to_save(
    const std::vector<NamedTensor>& values) {
  auto tensors = tensors_of(module_);
  for (NamedTensor& each : tensors)
    for (const NamedTensor& value : values)
      if (value.name == each.name) each.tensor = value.tensor;
  return tensors;
}

LentParameters::LentParameters(Distributed::Impl& run) {
  if (run.strategy().equal_replicas()) return;
  if (const torch::Tensor mean = run.averaged_parameters(); mean.defined())
    values_.put(run.binding().parameter_plane(), mean);
}

LentAverage::LentAverage(Distributed::Impl& run, Weights weights) {
  if (weights != Weights::ema) return;
  for (const NamedTensor& value : run.averaged_ema())
    values_.put(*run.module().named_parameters().find(value.name), value.tensor);
}

LentBuffers::LentBuffers(const Binding& binding, const std::vector<NamedTensor>& values) {
  for (const auto* buffers : {&binding.float_buffers(), &binding.integer_buffers()})
    for (const NamedTensor& live : *buffers)
      for (const NamedTensor& value : values)
        if (value.name == live.name) values_.put(live.tensor, value.tensor);
}

Evaluation::Lent::Lent(Distributed::Impl& run, Weights weights)
    : mean(run),
      average(run, weights),
      buffers(run.binding(), run.averaged_buffers()),
      mode(run.module()),
      users_code(run.calls(), "") {}

Evaluation::Evaluation(Distributed::Impl& run, Weights weights)
    : run_(run),
      call_(run.calls(),
            weights == Weights::ema ? "run.evaluate() of Weights::ema" : "run.evaluate()"),
      phase_(run.world().impl().board(), Phase::evaluating) {
  run.come_to_evaluate(weights);
  lent_.emplace(run, weights);
  run.set_evaluating(true);
}

Evaluation::~Evaluation() {
  try {
    end();
  } catch (...) {  // the body's own error is on its way
  }
}

void Evaluation::end() {
  if (!lent_) return;
  run_.set_evaluating(false);
  lent_.reset();
  run_.after_flush();
}

// Workers that make rounds together may come after different numbers of steps: they wait for each
// other in a flush. Those that do not make rounds have nothing to wait for but marks.
void Distributed::Impl::come_to_evaluate(Weights weights) {
  check_usable();
  check_not_evaluating("evaluate()");
  if (in_step())
    throw ConfigError(
        "evaluate() came between backward() and step(): call it after step(), when the gradients "
        "have been used");
  check_has(weights);
  // A worker at a mark of every() waits for all to come to it.
  const bool apart = strategy_->survives_losses() && (marked_.empty() || at_mark_);
  apart ? settle() : flush();
  calls().meet("its beginning");  // and not the end of a loop, which is a flush, too
  if (apart) check_module();
}

void Distributed::keep_ema(double decay) { impl_->keep_ema(decay); }

void Distributed::evaluate(const std::function<void()>& body, Weights weights) {
  Evaluation evaluation(*impl_, weights);
  body();
  evaluation.end();
}

void Distributed::save(const std::string& path, Weights weights) {
  impl_->check_has(weights);
  const Workers::Calls::Scope call(
      impl_->calls(), weights == Weights::ema ? "run.save() of Weights::ema" : "run.save()");
  const PhaseScope phase(impl_->world().impl().board(), Phase::saving);
  flush();
  impl_->calls().meet("its beginning");
  impl_->compare_replicas("save()", Impl::Differences::where_all_live);
  auto values = impl_->averaged_buffers();
  if (weights == Weights::ema)
    for (NamedTensor& each : impl_->averaged_ema()) values.push_back(std::move(each));
  const auto tensors = impl_->tensors_to_save(values);
  impl_->world().impl().write_once([&] {
    if (is_state_dict(path))
      write_state_dict(path, impl_->module(), tensors);
    else
      write_safetensors(path, tensors);
  });
  impl_->after_flush();
}

}  // namespace skein
