// What `skein train` does with a run beyond the public API, and why each of it is not public.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "core/clock.h"
#include "core/trace.h"
#include "keep/checkpoint_state.h"
#include "observe/board.h"
#include "runtime/calls.h"
#include "skein/torch.h"
#include "torch/named_tensor.h"

namespace skein {

// Refers to the run, which must outlive it. For the thread of that run.
class TrainAccess {
 public:
  explicit TrainAccess(Distributed& run) : run_(run) {}

  // Emulated computation takes its time in the middle of forward and backward. Programs compute.
  struct PaceHooks {
    std::function<void(int slot)> before_gradient;
    std::function<void(int slot)> before_read;                               // that may wait
    std::function<void(std::string_view what, Duration waited)> after_wait;  // for either of them
    std::function<void()> after_reorder;  // slots have other numbers than before
  };
  void set_pace(PaceHooks hooks);
  const Arena& arena();

  // What the worker does now, on the launcher's board. A program's board is kept by the run, which
  // does not know where forward begins.
  void set_phase(Phase phase) { set_phase(run_.world(), phase); }
  static void set_phase(World& world, Phase phase);

  // The strategy's spans and those that are reported here go to `trace`, without overlaps. Its
  // files need calls of all workers at the end, where the program has other things to do, too.
  void trace_to(Trace& trace);
  void span(Lane lane, std::string_view name, Time begin, Time end);

  // While it lives errors name the user's doing so, and not the call. They advise as the command
  // line should: a program's calls are no matter of its user's.
  Workers::Calls::Scope call(std::string name);
  void advise_nothing();

  // For the queue of batches. Programs have share().
  int queue_channel();

  // Distributed::verify() without its flush, after which the run would not be what is to be
  // verified.
  void verify_replicas();

  // An evaluation to which workers come one by one, as training should go on: with the mean of the
  // models and the buffers that `buffers` returns, which may be averaged_buffers(). For save(), the
  // same. A program's workers must come together, since nobody knows how it counts its steps.
  using Buffers = std::function<std::vector<NamedTensor>()>;
  void evaluate(const Buffers& buffers, const std::function<void()>& body);
  std::vector<NamedTensor> averaged_buffers();
  void save(const std::string& path, const Buffers& buffers);

  // Checkpoints are in a folder that the program has taken itself; `who` is what errors call
  // resume(), and `say` hears of checkpoints that were passed over. Before resume().
  void keep_folder(std::string who, std::function<void(const std::string&)> say);

  // Of checkpoints that are saved from now on; and as it was in the one that resume() has found.
  void set_run(const std::string& run_id, CheckpointState::Data data);
  CheckpointState::Data data();

  // CheckpointOptions::own of worker `rank` of those who saved what was resumed; nothing of one
  // that was lost.
  static OwnNumbers own_of(const Resumed& resumed, int rank);

 private:
  Distributed& run_;
};

}  // namespace skein
