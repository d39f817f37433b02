// How the workers of a run turn their gradients into one model.
//
// A Driver calls, for every step and in this order: expect, need for each bucket before forward
// reads it, begin_step when backward begins, gradient_ready for each bucket during backward,
// end_step. Only the driver's loop calls a strategy, so it needs no locks.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "core/task.h"
#include "plan/bucket_plan.h"
#include "strategy/shared_state.h"
#include "strategy/worker.h"

namespace skein {

inline constexpr std::int64_t kUnknown = -1;

// Is shown a part of the optimizer's state as a plane of the whole model: the elements `range` of
// the vector `name`, one of Optimizer::state().
using TakeState = std::function<void(const std::string& name, Range range, Span values)>;

// Where a part of a plane lies when the plane is laid out anew.
struct Placed {
  Range before;
  std::size_t now = 0;  // its first element
};

// What is true of a strategy whatever its options. Each has one as `kTraits`, where help, `skein
// doctor`, `skein advise`, the swarm and the documentation's table read it.
struct StrategyTraits {
  const char* waits_for;  // who waits for whom, and how long
  const char* updates;    // what an update is made of
  const char* does;       // what it does instead of waiting, as a sentence goes on; of synchronous
                          // ones: how it comes to the same

  // All workers make each step together and share its batch. Else each steps at its own pace, with
  // samples that it draws itself, and ends when progress.samples reaches the budget.
  bool lockstep = true;

  // All replicas have the same bits after every update. Else each worker's optimizer has a state of
  // its own too, which a checkpoint keeps for each.
  bool equal_replicas = true;

  // Every update is that of one worker with the whole batch.
  bool synchronous = true;

  bool repeats = true;           // bit for bit, where workers draw samples of their own
  bool survives_losses = false;  // the run goes on for the others when a worker dies
  bool needs_graph = false;      // of who talks to whom: it has the options topology and rate
  int planes = 0;  // of the model's size that a worker needs besides model and gradients
  int price = 0;   // by how many per cent more samples than `allreduce` it is taken to need, above
                   // what `skein advise` allows for strategies that are not synchronous
  char letter = '?';  // in the map of `skein advise`
};

class Strategy {
 public:
  // `traits` outlives it.
  Strategy(Worker& worker, const StrategyTraits& traits) : worker_(worker), traits_(traits) {}
  Strategy(const Strategy&) = delete;
  Strategy& operator=(const Strategy&) = delete;
  virtual ~Strategy() = default;

  // The buckets in which gradients are reported and parameters needed. Constant during a step.
  virtual const BucketPlan& plan() const = 0;

  const StrategyTraits& traits() const { return traits_; }
  bool lockstep() const { return traits_.lockstep; }
  bool equal_replicas() const { return traits_.equal_replicas || worker_.size() == 1; }
  bool survives_losses() const { return traits_.survives_losses; }

  // Whether this worker's model may differ from others' now: after flush() it does not.
  virtual bool replicas_differ() const { return !equal_replicas(); }

  // How many of the next global batch's samples each rank should take; the same on all ranks. Only
  // asked in lockstep.
  virtual std::vector<std::int64_t> split(std::int64_t samples);

  // The coming step will have that many samples. Called before any of its gradients are there,
  // where that is known. Never waits.
  virtual void expect(std::int64_t /*samples*/) {}

  // The backward of a step begins, in which this rank will compute `samples` samples: kUnknown if
  // nobody can say yet, then nothing is sent before end_step.
  virtual Task<> begin_step(std::int64_t samples) = 0;

  // Ends when forward may read the bucket's parameters; on a device, behind the mark.
  virtual Task<Mark> need(int bucket);

  // Whether need() can wait: only then reads of parameters are watched.
  bool waits_for_reads() const { return behaviour_.waits_for_reads; }

  // Whether gradients may be on their way to others before end_step, so that nobody may touch them
  // any more. Buckets that are not reported stay here until then.
  bool sends_in_backward() const { return behaviour_.sends_in_backward; }

  // Whether the arena should be laid out, once, in the order in which forward reads it.
  bool wants_order_of_reads() const { return behaviour_.wants_order_of_reads; }

  // The bucket's gradients of this step are complete. Starts what is to be started; never waits.
  virtual void gradient_ready(int bucket) = 0;

  // Backward has ended; gradients are means over `samples` samples (0: none, and what is there is
  // cleared and counts nowhere; out of lockstep, this worker has none left, and waits until the
  // others have done what they have). A step in which nobody has samples is no update. Buckets not
  // reported by now have what gradients they have. When it ends the next step may begin.
  virtual Task<> end_step(std::int64_t samples) = 0;

  // Leaves the model that should be evaluated or saved: every update applied, replicas equal, full
  // precision, and progress the same on all workers. It says that this worker makes no more steps
  // until all have come here, and ends on all when they have: what others do meanwhile goes on with
  // nothing from this worker, as if it called end_step(0). So workers may come after different
  // numbers of steps. Between steps; training may go on afterwards.
  virtual Task<> flush();

  // Ends what is on its way and leaves this worker's own model, which may differ from the others'
  // (equal_replicas), in the arena's parameters; nothing touches it until the next step. Training
  // goes on from there as if nothing had been asked.
  virtual Task<> settle();

  // Training goes on after flush(), before the next forward: the parameters become again what they
  // would be without it. Called where the moment is known; else the next step is computed at the
  // flushed model.
  virtual void after_flush() {}

  // Copies this worker's model, as it is now, where that is not the arena's parameters; else
  // returns false. For observers: nothing changes.
  virtual bool read_model(Span /*into*/) const { return false; }

  // Shows the optimizer's state, whoever holds which part of it, to `take` on rank `to`: vector
  // after vector, each from the plane's first element to its last; the mean where each worker has
  // one of its own. The other ranks' `take` is not called. Nobody holds more than its own part and
  // a message. All workers call it, between steps and after flush().
  virtual Task<> stream_state(int to, const TakeState& take);

  // What the workers have in common beside model, optimizer and progress, for checkpoints.
  virtual SharedState shared_state() { return {}; }

  // What this worker's part needs, beyond model, optimizer and progress, to go on after a restart
  // as if there had been none: where its random generators stand, what it has counted, how far
  // it is in a period. Asked for after flush(), and given, with whatever a file held, to the same
  // strategy of another run before its first step.
  virtual std::vector<std::int64_t> own_words() const { return {}; }
  virtual void restore_own(const std::vector<std::int64_t>& /*words*/) {}

  // What a strategy does besides, from the start of a run to its end.
  virtual Task<> background();

  // Whether all workers made the last step themselves, and none while it waits in flush(): the same
  // on all that made it.
  virtual bool all_made_the_last_step() const { return true; }

  // The worker's arena and optimizer are others now: the same parameters in another order, with the
  // same values on all workers, all between the same two steps and after flush(). The optimizer has
  // no state yet: take_over_state() brings it.
  virtual void arena_changed() {}

  // Moves the state of the optimizer before that, `from`, to whom it belongs now. `before` was
  // plan(), and `placed`, in the order of the former plane, holds every parameter. All workers call
  // it, after arena_changed(). Nobody holds more than its own part and a few messages.
  virtual Task<> take_over_state(Optimizer& from, const BucketPlan& before,
                                 const std::vector<Placed>& placed);

  // Figures of this strategy's own on this worker, for reports: of the whole run, and of the last
  // step. JSON objects.
  virtual nlohmann::json figures() const;
  virtual nlohmann::json step_figures() const;

  // What a person should know of it at the end of a run; empty: nothing.
  virtual std::string summary() const { return ""; }

 protected:
  // For a strategy that would mistake the gradients of the step under way.
  [[noreturn]] static void refuse_flush_within_step();

  // Makes `values` their mean over the workers, where each has state of its own.
  virtual Task<> average(Span values);

  // What does not change during a run: the constructor sets what is true of it.
  struct Behaviour {
    bool waits_for_reads = false, sends_in_backward = false, wants_order_of_reads = false;
  };

  Worker& worker_;
  Behaviour behaviour_;

 private:
  const StrategyTraits& traits_;
};

}  // namespace skein
