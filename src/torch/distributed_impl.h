// The inside of a Distributed: ties a bound module, an optimizer and a strategy to a world.
#pragma once

#include <torch/torch.h>

#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "core/worker_time.h"
#include "runtime/world_impl.h"
#include "skein/torch.h"
#include "strategy/driver.h"
#include "torch/agreement.h"
#include "torch/before_update.h"
#include "torch/binding.h"
#include "torch/data_cursor.h"
#include "torch/gradient_hooks.h"
#include "torch/model_averages.h"
#include "torch/module_program.h"
#include "torch/parameter_groups.h"
#include "torch/periodic_calls.h"
#include "torch/read_hook.h"
#include "torch/read_order.h"
#include "torch/recorder.h"
#include "torch/replicas.h"
#include "torch/run_settings.h"
#include "torch/torch_stream.h"

namespace skein {

class Checkpoints;

class Distributed::Impl {
 public:
  Impl(World& world, torch::nn::Module& module, const OptimizerSpec& recipe,
       const StrategySpec& strategy, Channel channels);
  ~Impl();

  // What must be the same on all workers.
  Facts facts() const;

  // Begins the run. All workers call it, when they know that their facts agree.
  void start();

  void step(std::int64_t samples);
  void expect(std::int64_t samples);
  void accumulate(int backward_passes);
  void before_update(std::function<void(AveragedGradients&)> change) {
    before_update_.set(std::move(change));
  }
  bool done(std::int64_t total_samples);
  bool stopping();
  void flush();

  // The parts of a run, each with a job of its own.
  RunSettings& settings() { return settings_; }
  DataCursor& data() { return data_; }
  ModelAverages& averages() { return averages_; }
  Replicas& replicas() { return replicas_; }
  PeriodicCalls& periodic() { return periodic_; }
  Recorder& recorder() { return recorder_; }
  Checkpoints& checkpoints();  // made when it is first asked for

  // See Driver.
  void settle();
  void after_flush() { driver_.after_flush(); }

  // flush() without the marks of every(); and after_flush() where others may wait in a flush() for
  // this worker to come to stay.
  void flush_strategy();
  void go_on();

  // Lays the arena out in the order of these slots, with everything that has its shape. All workers
  // call it with the same order, between steps.
  void reorder(const std::vector<int>& order);

  // Whether the layout is final; and makes it so, where a resumed run has the one of its first run.
  bool order_is_settled() const { return !read_order_; }
  void settle_order() { read_order_.reset(); }

  // See Strategy. All workers call it.
  void stream_optimizer_state(int to, const TakeState& take);

  // ConfigError where a call cannot be made now: after a failure, within a step, or within an
  // Evaluation.
  void check_usable() const;
  void check_between_steps(const char* what) const;
  void check_not_evaluating(const char* call) const;

  // Memory for `count` floats where the module computes, and a copy in the host's.
  std::unique_ptr<Memory> allocate(std::size_t count);
  std::unique_ptr<Memory> on_host(Span values);

  // Gives all workers rank 0's values, of any dtype.
  void broadcast(const torch::Tensor& tensor);

  // From now on every call says why.
  void cannot_go_on(const std::string& why) {
    if (broken_.empty()) broken_ = why;
  }

  // Nothing has failed after which no step can be made.
  bool usable() const { return broken_.empty() && world_.impl().failed().empty(); }

  // False in a child that fork() made of this worker. There gradients and reads are nobody's, and
  // this object must not be destroyed: what it would end is its parent's.
  bool here() const { return world_.impl().here(); }

  // What a hook on a read or on a gradient has thrown in this step, with its class; null: nothing.
  // Forward goes on after a read that failed, and a binding to another language may get an error of
  // another class out of backward(). It is given once.
  std::exception_ptr take_error();

  // Gradients of a step are there that step() has not used.
  bool in_step() const { return driver_.begun(); }

  World& world() { return world_; }
  Workers::Calls& calls() { return world_.impl().calls(); }
  torch::nn::Module& module() { return module_; }
  Binding& binding() { return binding_; }
  Device device() const { return stream_.device(); }
  Worker& worker() { return worker_; }
  Optimizer& optimizer() { return *optimizer_; }
  Strategy& strategy() { return *strategy_; }
  Driver& driver() { return driver_; }

  // What the user's thread does with its time in steps. Whoever knows more of it than this class,
  // such as when forward was, reports that there.
  WorkerTime& time() { return time_; }

  // Calls `look` while nothing else touches the strategy.
  void look_at(const std::function<void(const Strategy&)>& look) {
    courier().with_loop([&] { look(*strategy_); });
  }

  void trace_to(Trace* trace) {
    time_.pass_on_to(trace);
    program_.trace_device(time_);
  }

  // Called in backward before the slot's gradient is reported: where emulated computation takes its
  // time.
  std::function<void(int slot)> before_gradient;
  // Called before a read of the slot that may wait; and after a wait in forward or backward: for
  // the read ("read"), or before the first gradient ("begin").
  std::function<void(int slot)> before_read;
  std::function<void(std::string_view what, Duration waited)> after_wait;
  // Called when slots have other numbers than before.
  std::function<void()> after_reorder;

 private:
  Courier& courier() { return world_.impl().courier(); }
  Fabric& fabric() { return world_.impl().fabric(); }
  void flush_last_step() noexcept;
  void start_from_rank_0();
  void install_hooks();
  void reorder_once();
  void begin_step_once(std::int64_t samples = kUnknown);
  void note_step();
  void check_touched_gradients();
  void check_has_gradients(std::int64_t samples) const;
  void stop_for(const ConfigError& error);
  void wait(Task<> task, bool may_ask = true);
  void wait_in_step(const char* what, Task<> task);
  std::unique_ptr<Optimizer> new_optimizer();
  void on_gradient(int slot);
  void on_read(int slot);
  void watch_reads();
  void all_read();

  World world_;
  torch::nn::Module& module_;
  OptimizerSpec recipe_;
  TorchStream stream_;     // what torch computes for this module
  bool has_loop_ = false;  // this thread holds the loop
  WorkerTime time_;
  Binding binding_;
  ParameterGroups groups_;
  std::unique_ptr<Optimizer> optimizer_;
  Worker worker_;
  RunSettings settings_;
  std::unique_ptr<Strategy> strategy_;
  ScopedJob background_;
  BeforeUpdate before_update_;
  ModuleProgram program_;
  Driver driver_;
  std::unique_ptr<GradientHooks> hooks_;

  std::unique_ptr<ReadOrder> read_order_;  // of the first forward; null after the first step

  // Reads of parameters while an update may be on its way; null for strategies that never wait.
  std::unique_ptr<ReadHook> reads_;
  std::mutex reading_;  // one read at a time waits

  bool at_rest_ = false;  // no step has begun since the last flush that this worker came to stay in

  DataCursor data_{world_, worker_};
  ModelAverages averages_{*this};
  Replicas replicas_{*this};
  PeriodicCalls periodic_{*this};
  Recorder recorder_{*this};
  StrategySpec spec_;
  std::string broken_;             // why no step can be made any more
  std::exception_ptr hook_error_;  // of a gradient
  std::unique_ptr<Checkpoints> checkpoints_;
};

}  // namespace skein
