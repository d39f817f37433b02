#include "torch/train_access.h"

#include <utility>

#include "torch/checkpoints.h"
#include "torch/distributed_impl.h"
#include "torch/evaluation.h"
#include "torch/run_state.h"

namespace skein {

void TrainAccess::set_pace(PaceHooks hooks) {
  Distributed::Impl& run = run_.impl();
  run.before_gradient = std::move(hooks.before_gradient);
  run.before_read = std::move(hooks.before_read);
  run.after_wait = std::move(hooks.after_wait);
  run.after_reorder = std::move(hooks.after_reorder);
}

const Arena& TrainAccess::arena() { return run_.impl().binding().arena(); }

void TrainAccess::set_phase(World& world, Phase phase) { world.impl().board().set_phase(phase); }

void TrainAccess::trace_to(Trace& trace) { run_.impl().trace_to(&trace); }

void TrainAccess::span(Lane lane, std::string_view name, Time begin, Time end) {
  run_.impl().time().span(lane, name, begin, end);
}

Workers::Calls::Scope TrainAccess::call(std::string name) {
  return {run_.impl().calls(), std::move(name)};
}

void TrainAccess::advise_nothing() { run_.impl().calls().advise(""); }

int TrainAccess::queue_channel() { return run_.impl().worker().queue_channel(); }

void TrainAccess::verify_replicas() { run_.impl().replicas().verify(); }

void TrainAccess::evaluate(const Buffers& buffers, const std::function<void()>& body) {
  Evaluation evaluation(run_.impl(), buffers);
  body();
  evaluation.end();
}

std::vector<NamedTensor> TrainAccess::averaged_buffers() {
  return run_.impl().averages().buffers();
}

void TrainAccess::save(const std::string& path, const Buffers& buffers) {
  save_model(run_, path, buffers);
}

void TrainAccess::keep_folder(std::string who, std::function<void(const std::string&)> say) {
  run_.impl().checkpoints().keeper.emplace(std::move(who), std::move(say));
}

void TrainAccess::set_run(const std::string& run_id, CheckpointState::Data data) {
  run_.impl().checkpoints().run_id = run_id;
  run_.impl().checkpoints().keeper->data = std::move(data);
}

CheckpointState::Data TrainAccess::data() { return run_.impl().checkpoints().keeper->data; }

OwnNumbers TrainAccess::own_of(const Resumed& resumed, int rank) {
  const auto file = own_file(resumed.path, rank);
  return std::filesystem::exists(file) ? own_numbers(read_safetensors(file)) : OwnNumbers();
}

}  // namespace skein
