// The time in which a module is the one to judge; and a model file, which holds the same one.
#include "torch/evaluation.h"
#include "torch/safetensors.h"
#include "torch/state_dict.h"

namespace skein {
namespace {

// Makes all workers ready for an evaluation. Workers that make rounds together may come after
// different numbers of steps: they wait for each other in a flush. Those that do not make rounds
// have nothing to wait for but marks.
void come_to_evaluate(Distributed::Impl& run, Weights weights, bool together) {
  run.check_usable();
  run.check_not_evaluating("evaluate()");
  if (run.in_step())
    throw ConfigError(
        "evaluate() came between backward() and step(): call it after step(), when the gradients "
        "have been used");
  run.averages().check_has(weights);
  // A worker at a mark of every() waits for all to come to it.
  const bool apart = !together || (run.strategy().survives_losses() && !run.periodic().awaited());
  apart ? run.settle() : run.flush();
  if (together)
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

Evaluation::Lent::Lent(Distributed::Impl& run, Weights weights, const Buffers& buffers)
    : model(run, weights, buffers), mode(run.module()), users_code(run.calls(), "") {}

Evaluation::Evaluation(Distributed::Impl& run, Weights weights)
    : run_(run),
      call_(run.calls(),
            weights == Weights::ema ? "run.evaluate() of Weights::ema" : "run.evaluate()"),
      phase_(run.world().impl().board(), Phase::evaluating) {
  come_to_evaluate(run, weights, /*together=*/true);
  lent_.emplace(run, weights, [&run] { return run.averages().buffers(); });
  run.averages().set_evaluating(true);
}

Evaluation::Evaluation(Distributed::Impl& run, const Buffers& buffers)
    : run_(run),
      call_(run.calls(), "run.evaluate()"),
      phase_(run.world().impl().board(), Phase::evaluating) {
  come_to_evaluate(run, Weights::trained, /*together=*/false);
  lent_.emplace(run, Weights::trained, buffers);
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

void save_model(Distributed& run, const std::string& path, const Evaluation::Buffers& values) {
  Distributed::Impl& inside = run.impl();
  World& world = run.world();
  const PhaseScope phase(world.impl().board(), Phase::saving);
  run.flush();
  inside.calls().meet("its beginning");
  inside.replicas().compare("save()", Replicas::Differences::where_all_live);
  const auto tensors = inside.averages().tensors_to_save(values());
  world.once(
      [&] {
        if (is_state_dict(path))
          write_state_dict(path, inside.module(), tensors);
        else
          write_safetensors(path, tensors);
      },
      "the end of writing a file");
  inside.after_flush();
}

void Distributed::save(const std::string& path, Weights weights) {
  impl_->averages().check_has(weights);
  const Workers::Calls::Scope call(
      impl_->calls(), weights == Weights::ema ? "run.save() of Weights::ema" : "run.save()");
  save_model(*this, path, [&] {
    auto values = impl_->averages().buffers();
    if (weights == Weights::ema)
      for (NamedTensor& each : impl_->averages().ema_values()) values.push_back(std::move(each));
    return values;
  });
}

}  // namespace skein
