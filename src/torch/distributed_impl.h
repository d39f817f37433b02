// The inside of a Distributed: ties a bound module, an optimizer and a strategy to a world.
#pragma once

#include <torch/torch.h>

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "core/worker_time.h"
#include "plan/marks.h"
#include "runtime/feed.h"
#include "runtime/world_impl.h"
#include "skein/torch.h"
#include "strategy/strategy.h"
#include "torch/agreement.h"
#include "torch/binding.h"
#include "torch/device_trace.h"
#include "torch/gradient_hooks.h"
#include "torch/gradient_source.h"
#include "torch/optimizer_view.h"
#include "torch/parameter_groups.h"
#include "torch/read_hook.h"
#include "torch/read_order.h"
#include "torch/recorder.h"
#include "torch/step_gradients.h"
#include "torch/torch_stream.h"
#include "torch/weight_average.h"

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
  void every(std::int64_t samples, std::function<void()> body);
  void save_checkpoint(const std::string& folder, const Values& values,
                       const CheckpointOptions& options);
  Resumed resume(const std::string& folder);

  // For loops over shared data (share_loop.cpp). A batch of so many samples is the coming step's,
  // until step() has come; step_handed_out() is that step.
  void hand_out(std::int64_t samples);
  bool handed_out() const { return handed_out_ >= 0; }
  void take_back() { handed_out_ = -1; }
  void step_handed_out();

  // The number of a loop's first epoch: of those that do not say it, the one after the last loop's.
  std::int64_t number_epochs(const ShareOptions& options);

  // How many of a loop's `samples` were trained on before this run was resumed, and by no loop that
  // was asked before; of one that says its first epoch, where all those before it were trained on.
  std::int64_t pass_over(std::int64_t samples);
  std::int64_t pass_over_epochs(std::int64_t dataset_size, const ShareOptions& options);

  // A loop that trains is open: there is one at a time.
  bool in_loop = false;

  // Where such a loop draws from; on rank 0 it serves the others as long as they are in theirs.
  std::unique_ptr<Feed> feed;

  Recorder& recorder() { return recorder_; }
  double learning_rate() const;
  void set_learning_rate(double rate);
  void set_frozen(const WhichParameters& which, bool frozen);
  torch::optim::Optimizer& optimizer_view() { return view_; }

  // What the user changed of the recipe while the run went on, as text: part of a checkpoint. What
  // is not changed is not in it, so that the recipe of the resumed run holds. Between steps.
  // ConfigError for settings that cannot be, or of another number of groups.
  std::map<std::string, std::string> settings();
  // `steps`: updates that the run had made whose settings these are.
  void check_settings(const std::map<std::string, std::string>& settings, std::int64_t steps) const;
  void restore_settings(const std::map<std::string, std::string>& settings, std::int64_t steps);

  // How many updates of this worker each parameter has missed while it was frozen, in the order of
  // registration.
  std::vector<std::int64_t> missed_updates() const;
  void restore_missed_updates(const std::vector<std::int64_t>& missed);

  // See Strategy.
  void settle();

  // The mean of all workers' parameters, which stay as they are; an undefined tensor where they are
  // equal, since nobody has made a step since all came together. All workers call it.
  torch::Tensor averaged_parameters();

  // See Strategy. After flush(), by whoever knows that training goes on.
  void after_flush();

  // Lays the arena out in the order of these slots, with everything that has its shape. All workers
  // call it with the same order, between steps.
  void reorder(const std::vector<int>& order);

  // Whether the layout is final; and makes it so, where a resumed run has the one of its first run.
  bool order_is_settled() const { return !read_order_; }
  void settle_order() { read_order_.reset(); }

  // How many slots lie elsewhere than in the order of registration.
  int reordered() const { return reordered_; }

  // This module's buffers as they should be saved: floating-point ones averaged over the workers,
  // integer ones those of rank 0 (its own, where rank 0 may be gone). Copies; the live ones stay as
  // they are. All workers call it.
  std::vector<NamedTensor> averaged_buffers();

  // The module's tensors under their names, with those buffers, or `values`, in place of the live
  // ones.
  std::vector<NamedTensor> tensors_to_save() { return tensors_to_save(averaged_buffers()); }
  std::vector<NamedTensor> tensors_to_save(const std::vector<NamedTensor>& values);

  // See Distributed. `ema()` is null where none is kept.
  void keep_ema(double decay);
  WeightAverage* ema() { return ema_.get(); }
  void check_has(Weights weights) const;

  // For Evaluation: makes all workers ready for one, or throws; and whether one is under way.
  void come_to_evaluate(Weights weights);
  void set_evaluating(bool evaluating) { evaluating_ = evaluating; }

  // The moving average, of all workers where theirs differ. All workers call it.
  std::vector<NamedTensor> averaged_ema();

  // See Strategy. All workers call it.
  void stream_optimizer_state(int to, const TakeState& take);

  // An Evaluation is under way.
  bool evaluating() const { return evaluating_; }

  // Throws Error, naming the parameter and the ranks, unless all workers' parameters are bit-equal.
  // All call it after the same update.
  void verify_replicas();

  // The same after flush(), as a part of `call`, for which all meet.
  enum class Differences { always, where_all_live };
  void compare_replicas(const std::string& call, Differences refused = Differences::always);

  std::shared_ptr<Memory> model_apart();  // null: it is the parameters

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

  // Made when it is first asked for.
  Checkpoints& checkpoints();

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
  void flush_strategy();
  void come_together(bool to_stay);
  std::vector<Marks*> all_marks();
  bool mark_is_due() { return first_due(all_marks(), worker_.progress.samples) != nullptr; }
  bool see_to_marks();
  void start_from_rank_0();
  void average_over_workers(std::vector<NamedTensor>& tensors);
  void install_hooks();
  void reorder_once();
  void broadcast(const torch::Tensor& tensor);
  void begin_step_once();
  void note_step();
  void say_that_a_loop_was_passed_over();
  void check_touched_gradients();
  void check_has_gradients(std::int64_t samples) const;
  void check_not_evaluating(const char* call) const;
  void check_module();
  std::vector<std::uint64_t> digests(Span parameters);
  std::string name_of_digest(std::size_t index) const;
  void check_usable() const;
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
  std::unique_ptr<Memory> allocate(std::size_t count);
  std::unique_ptr<Optimizer> new_optimizer();
  void adopt_rates();
  void set_base_rate(double rate);
  std::vector<std::int64_t> missed_in(const std::map<std::string, std::string>& settings,
                                      std::int64_t steps) const;
  void apply_groups();
  void check_between_steps(const char* what) const;
  std::unique_ptr<Memory> on_host(Span values);
  void stay_near();
  void trace_compute_begin();
  void trace_compute_end();
  void hand_over(const std::function<void()>& work);
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
  OptimizerView view_;
  std::vector<double> rates_;  // of the view when it was last looked at
  const std::vector<double> first_rates_;
  const std::vector<std::string> first_frozen_;
  Worker worker_;
  std::unique_ptr<Strategy> strategy_;
  ScopedJob background_;
  std::unique_ptr<GradientHooks> hooks_;

  std::unique_ptr<ReadOrder> read_order_;  // of the first forward; null after the first step
  std::vector<int> registered_;            // what was slot i when the module was bound
  int reordered_ = 0;

  // Reads of parameters while an update may be on its way; null for strategies that never wait.
  std::unique_ptr<ReadHook> reads_;
  std::mutex reading_;        // one read at a time waits
  std::vector<bool> unread_;  // buckets that nobody has read since the last step
  int unread_count_ = 0;
  Duration step_wait_{};  // of the user, since compute_from_

  // What every() was given, with the marks at which it is due; and whether one of them is called.
  struct Marked {
    std::int64_t every;
    Marks marks;
    std::function<void()> body;
  };
  std::vector<Marked> marked_;
  bool at_mark_ = false;

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
  Recorder recorder_{*this};
  int passes_ = 1;                    // backward passes per step
  std::int64_t expected_ = kUnknown;  // samples of the coming step
  std::int64_t usual_ = kUnknown;     // of the last step that had any
  std::int64_t handed_out_ = -1;      // of a batch that no step was made of yet
  // Samples before the run was resumed that no loop has passed over; before the first: unknown.
  std::int64_t resumed_ = -1;
  std::int64_t next_epoch_ = 0;  // of a loop that does not say its own
  bool said_passed_over_ = false;
  bool begun_ = false;  // begin_step was called for it
  bool evaluating_ = false;
  StrategySpec spec_;
  std::string broken_;             // why no step can be made any more
  std::exception_ptr hook_error_;  // of a gradient
  Time compute_from_{};
  std::unique_ptr<WeightAverage> ema_;
  std::string resumed_from_;  // the checkpoint; empty: the run began with this program
  std::unique_ptr<Checkpoints> checkpoints_;
};

}  // namespace skein
