// How the workers of a run turn their gradients into one model.
//
// A driver (the trainer of a real run, or the virtual cluster) calls, for every step and in this
// order: expect, need for each bucket before forward reads it, begin_step when backward begins,
// gradient_ready for each bucket during backward, end_step. Only the driver's loop calls a
// strategy, so it needs no locks.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "core/task.h"
#include "plan/bucket_plan.h"
#include "strategy/worker.h"

namespace skein {

inline constexpr std::int64_t kUnknown = -1;

// Planes of the whole model, by the names of Optimizer::state().
using OptimizerState = std::map<std::string, std::unique_ptr<Memory>>;

// Is shown a part of such a plane: the elements `range` of the vector `name`.
using TakeState = std::function<void(const std::string& name, Range range, Span values)>;

// The optimizer's state as planes of the whole model; zero where this optimizer owns nothing.
OptimizerState own_state(Optimizer& optimizer, std::size_t plane_size,
                         const Allocate& allocate = allocate_on_heap);

// Copies from `state` what this optimizer owns of it. Requires a plane for each of its vectors.
void restore_state(Optimizer& optimizer, const OptimizerState& state);

class Strategy {
 public:
  explicit Strategy(Worker& worker) : worker_(worker) {}
  Strategy(const Strategy&) = delete;
  Strategy& operator=(const Strategy&) = delete;
  virtual ~Strategy() = default;

  // The buckets in which gradients are reported and parameters needed. Constant during a step.
  virtual const BucketPlan& plan() const = 0;

  // Whether all workers make each step together and share its batch. Else each steps at its own
  // pace, with samples that it draws itself, and ends when progress.samples reaches the budget.
  virtual bool lockstep() const { return true; }

  // Whether all replicas have the same bits after every update. Else each worker's optimizer has a
  // state of its own too, which a checkpoint keeps for each.
  virtual bool equal_replicas() const { return true; }

  // Whether this worker's model may differ from others' now: after flush() it does not.
  virtual bool replicas_differ() const { return !equal_replicas(); }

  // How many of the next global batch's samples each rank should take; the same on all ranks. Only
  // asked in lockstep.
  virtual std::vector<std::int64_t> split(std::int64_t samples);

  // The coming step will have that many samples. Called before any of its gradients are there, by
  // a driver that knows.
  virtual Task<> expect(std::int64_t samples);

  // The backward of a step begins, in which this rank will compute `samples` samples: kUnknown if
  // nobody can say yet, then nothing is sent before end_step.
  virtual Task<> begin_step(std::int64_t samples) = 0;

  // Ends when forward may read the bucket's parameters; on a device, behind there(bucket).
  virtual Task<> need(int bucket);
  virtual Mark there(int /*bucket*/) const { return nullptr; }

  // Whether gradients may be on their way to others before end_step, so that nobody may touch them
  // any more. A driver that does not report buckets keeps them here until then.
  virtual bool sends_in_backward() const { return false; }

  // The bucket's gradients of this step are complete. Starts what is to be started; never waits.
  virtual void gradient_ready(int bucket) = 0;

  // Backward has ended; gradients are means over `samples` samples (0: none, and they are zero; out
  // of lockstep, this worker has none left, and waits until the others have done what they have).
  // Buckets not reported by now have what gradients they have. When it ends the next step may
  // begin.
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
  // would be without it. Drivers that know the moment call it; else the next step is computed at
  // the flushed model.
  virtual void after_flush() {}

  // Whether the run goes on for the others when a worker dies.
  virtual bool survives_losses() const { return false; }

  // Copies this worker's model, as it is now, where that is not the arena's parameters; else
  // returns false. For observers: nothing changes.
  virtual bool read_model(Span /*into*/) const { return false; }

  // Fills `state` with the optimizer's state as planes of the whole model, by name, whoever holds
  // which part of it; the mean where each has one of its own. All workers call it, between steps
  // and with nothing on its way.
  virtual Task<> whole_state(OptimizerState& state);

  // Shows the same to `take` on rank `to`, plane after plane, each from its first element to its
  // last; the other ranks' `take` is not called. Where state is sharded nobody holds more than its
  // own part and a message. Called like whole_state().
  virtual Task<> stream_state(int to, const TakeState& take);

  // What this worker's part needs, beyond model, optimizer and progress, to go on after a restart
  // as if there had been none: where its random generators stand. Asked for after flush(), and
  // given, with whatever a file held, to the same strategy of another run before its first step.
  virtual std::vector<std::int64_t> own_words() const { return {}; }
  virtual void restore_own(const std::vector<std::int64_t>& /*words*/) {}

  // What a strategy does besides, from the start of a run to its end.
  virtual Task<> background();

  // Whether the arena should be laid out, once, in the order in which forward reads it.
  virtual bool wants_order_of_reads() const { return false; }

  // Whether all workers made the last step themselves, and none while it waits in flush(): the same
  // on all that made it.
  virtual bool all_made_the_last_step() const { return true; }

  // The worker's arena and optimizer are others now: the same parameters in another order, with the
  // same values on all workers, all between the same two steps and after whole_state(). The
  // optimizer's state is restored when this has ended.
  virtual void arena_changed() {}

  // Whether need() can wait: only then the driver watches reads of parameters.
  virtual bool waits_for_reads() const { return false; }

  // Figures of this strategy's own on this worker, for reports: of the whole run, and of the last
  // step. JSON objects.
  virtual nlohmann::json figures() const;
  virtual nlohmann::json step_figures() const;

  // What a person should know of it at the end of a run; empty: nothing.
  virtual std::string summary() const { return ""; }

 protected:
  // For a strategy that would mistake the gradients of the step under way.
  [[noreturn]] static void refuse_flush_within_step();

  Worker& worker_;
};

}  // namespace skein
