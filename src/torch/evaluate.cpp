// The time in which a module is the one to judge; and a model file, which holds the same one.
#include "torch/evaluation.h"
#include "torch/safetensors.h"
#include "torch/state_dict.h"

namespace skein {
namespace {

// Makes all workers ready for an evaluation. Workers that make rounds together may come after
// different numbers of steps: they wait for each other in a flush. Those that do not make rounds
// have nothing to wait for but marks.
void come_to_evaluate(Distributed::Impl& run, Weights weights) {
  run.check_usable();
  run.check_not_evaluating("evaluate()");
  if (run.in_step())
    throw ConfigError(
        "evaluate() came between backward() and step(): call it after step(), when the gradients "
        "have been used");
  run.averages().check_has(weights);
  // A worker at a mark of every() waits for all to come to it.
  const bool apart = run.strategy().survives_losses() && !run.periodic().awaited();
  apart ? run.settle() : run.flush();
  run.calls().meet("its beginning");  // and not the end of a loop, which is a flush, too
  if (apart) run.replicas().check_module();
}

}  // namespace

LentModel::LentModel(Distributed::Impl& run, Weights weights,
                     const std::function<std::vector<NamedTensor>()>& buffers)
    : LentModel() {  // so that the destructor follows what throws here
  if (!run.strategy().equal_replicas())
    if (const torch::Tensor mean = run.averages().parameters(); mean.defined())
      put(run.binding().parameter_plane(), mean);
  if (weights == Weights::ema)
    for (const NamedTensor& value : run.averages().ema_values())
      put(*run.module().named_parameters().find(value.name), value.tensor);
  const auto values = buffers();
  for (const auto* all : {&run.binding().float_buffers(), &run.binding().integer_buffers()})
    for (const NamedTensor& live : *all)
      for (const NamedTensor& value : values)
        if (value.name == live.name) put(live.tensor, value.tensor);
}

// A tensor may have been written twice: its own value was kept first.
LentModel::~LentModel() {
  const torch::NoGradGuard no_grad;
  for (auto each = kept_.rbegin(); each != kept_.rend(); ++each) each->first.copy_(each->second);
}

void LentModel::put(const torch::Tensor& live, const torch::Tensor& value) {
  const torch::NoGradGuard no_grad;
  kept_.emplace_back(live.detach(), live.detach().clone());
  live.detach().copy_(value);
}

Evaluation::Lent::Lent(Distributed::Impl& run, Weights weights)
    : model(run, weights, [&] { return run.averages().buffers(); }),
      mode(run.module()),
      users_code(run.calls(), "") {}

Evaluation::Evaluation(Distributed::Impl& run, Weights weights)
    : run_(run),
      call_(run.calls(),
            weights == Weights::ema ? "run.evaluate() of Weights::ema" : "run.evaluate()"),
      phase_(run.world().impl().board(), Phase::evaluating) {
  come_to_evaluate(run, weights);
  lent_.emplace(run, weights);
  run.averages().set_evaluating(true);
}

Evaluation::~Evaluation() {
  try {
    end();
  } catch (...) {  // the body's own error is on its way
  }
}

void Evaluation::end() {
  if (!lent_) return;
  run_.averages().set_evaluating(false);
  lent_.reset();
  run_.after_flush();
}

void Distributed::keep_ema(double decay) { impl_->averages().keep_ema(decay); }

void Distributed::evaluate(const std::function<void()>& body, Weights weights) {
  Evaluation evaluation(*impl_, weights);
  body();
  evaluation.end();
}

void Distributed::save(const std::string& path, Weights weights) {
  impl_->averages().check_has(weights);
  const Workers::Calls::Scope call(
      impl_->calls(), weights == Weights::ema ? "run.save() of Weights::ema" : "run.save()");
  const PhaseScope phase(impl_->world().impl().board(), Phase::saving);
  flush();
  impl_->calls().meet("its beginning");
  impl_->replicas().compare("save()", Replicas::Differences::where_all_live);
  ModelAverages& averages = impl_->averages();
  auto values = averages.buffers();
  if (weights == Weights::ema)
    for (NamedTensor& each : averages.ema_values()) values.push_back(std::move(each));
  const auto tensors = averages.tensors_to_save(values);
  impl_->world().impl().write_once([&] {
    if (is_state_dict(path))
      write_state_dict(path, impl_->module(), tensors);
    else
      write_safetensors(path, tensors);
  });
  impl_->after_flush();
}

}  // namespace skein
