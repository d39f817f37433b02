// The inside of a Distributed: ties a bound module, an optimizer and a strategy to a world.
#pragma once

#include <torch/torch.h>

#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "core/worker_time.h"
#include "runtime/world_impl.h"
#include "skein/torch.h"
#include "strategy/strategy.h"
#include "torch/agreement.h"
#include "torch/binding.h"
#include "torch/data_cursor.h"
#include "torch/device_trace.h"
#include "torch/gradient_hooks.h"
#include "torch/gradient_source.h"
#include "torch/model_averages.h"
#include "torch/parameter_groups.h"
#include "torch/periodic_calls.h"
#include "torch/read_hook.h"
#include "torch/read_order.h"
#include "torch/recorder.h"
#include "torch/replicas.h"
#include "torch/run_settings.h"
#include "torch/step_gradients.h"
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
  void before_update(std::function<void(AveragedGradients&)> change);
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

  // See Strategy.
  void settle();

  // See Strategy. After flush(), by whoever knows that training goes on.
  void after_flush();

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

  // Calls `work` on the loop, after what has been computed and before what is computed next.
  void hand_over(const std::function<void()>& work);

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
  bool in_step() const { return begun_; }

  World& world() { return world_; }
  Workers::Calls& calls() { return world_.impl().calls(); }
  torch::nn::Module& module() { return module_; }
  Binding& binding() { return binding_; }
  Device device() const { return stream_.device(); }
  Worker& worker() { return worker_; }
  Optimizer& optimizer() { return *optimizer_; }
  Strategy& strategy() { return *strategy_; }

  // What the user's thread does with its time in steps. Whoever knows more of it than this class,
  // such as when forward was, reports that there.
  WorkerTime& time() { return time_; }

  // Calls `look` while nothing else touches the strategy.
  void look_at(const std::function<void(const Strategy&)>& look) {
    courier().with_loop([&] { look(*strategy_); });
  }

  void trace_to(Trace* trace);

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
  void begin_step_once();
  void note_step();
  void check_touched_gradients();
  void check_has_gradients(std::int64_t samples) const;
  void stop_for(const ConfigError& error);
  void wait_in_step(const char* what, Task<> task);
  void begin_computing();
  void wait(Task<> task);
  void wait_inside(Task<> task);
  void wait_and_ask(Task<> task);
  void wait_in_order(Task<> task);
  Task<> in_order(Task<> task);
  void follow();
  Task<> after(Mark computed, Task<> task);
  std::unique_ptr<Optimizer> new_optimizer();
  void stay_near();
  void trace_compute_begin();
  void trace_compute_end();
  Task<> need(int bucket);
  Task<> announced(Task<> task, bool& ended);
  Task<> asked_or(const bool& ended);
  Task<> ask_user(AveragedGradients& gradients);
  Task<> end_step(std::int64_t samples);
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
  std::unique_ptr<GradientHooks> hooks_;

  std::unique_ptr<ReadOrder> read_order_;  // of the first forward; null after the first step

  // Reads of parameters while an update may be on its way; null for strategies that never wait.
  std::unique_ptr<ReadHook> reads_;
  std::mutex reading_;        // one read at a time waits
  std::vector<bool> unread_;  // buckets that nobody has read since the last step
  int unread_count_ = 0;
  Duration step_wait_{};  // of the user, since compute_from_

  bool flushed_ = true;   // parameters are those to save, not those to train on
  bool at_rest_ = false;  // no step has begun since the last flush that this worker came to stay in

  std::function<void(AveragedGradients&)> before_update_;
  AveragedGradients* asked_ = nullptr;  // what the user's thread is to look at
  GradientSource source_;               // and what it may do to it
  Signal user_;                         // asked_ changed, or what the user waits for has ended

  Mark handed_over_;  // where the loop's queue was when what was waited for had ended
  std::unique_ptr<DeviceTrace> device_trace_;  // where a trace is wanted and there is a device
  std::deque<Mark> computed_;  // the ends of the last steps, as the device comes to them

  StepGradients gradients_;
  DataCursor data_{world_, worker_};
  ModelAverages averages_{*this};
  Replicas replicas_{*this};
  PeriodicCalls periodic_{*this};
  Recorder recorder_{*this};
  int passes_ = 1;                    // backward passes per step
  std::int64_t expected_ = kUnknown;  // samples of the coming step
  std::int64_t usual_ = kUnknown;     // of the last step that had any
  bool begun_ = false;                // begin_step was called for it
  StrategySpec spec_;
  std::string broken_;             // why no step can be made any more
  std::exception_ptr hook_error_;  // of a gradient
  Time compute_from_{};
  std::unique_ptr<Checkpoints> checkpoints_;
};

}  // namespace skein
