// What the synchronous strategies share: buckets that are summed over all workers, one after the
// other, while backward goes on.
//
// The average is weighted by samples. Buckets are summed in one fixed order, so that workers whose
// gradients come in different orders, or not at all, still agree.
#pragma once

#include <vector>

#include "strategy/option_reader.h"
#include "strategy/step_table.h"
#include "strategy/strategy.h"

namespace skein {

class Synchronous : public Strategy {
 public:
  struct Options {
    Fusion fusion;
    bool balance = false, overlap = true;
    Wire wire = Wire::f32;
    bool reorder = true;

    Options() = default;
    explicit Options(OptionReader& reader);
  };

  Synchronous(Worker& worker, const StrategyTraits& traits, const Options& options);

  const BucketPlan& plan() const override { return plan_; }
  std::vector<std::int64_t> split(std::int64_t samples) override;
  Task<> begin_step(std::int64_t samples) override;
  void gradient_ready(int bucket) override;
  Task<> end_step(std::int64_t samples) final;

  // Checks that the last step was announced rightly, too.
  Task<> flush() override;
  bool all_made_the_last_step() const override { return !table_.any_waits(); }
  void arena_changed() override { plan_ = BucketPlan(worker_.arena(), options_.fusion); }

 protected:
  enum : Channel { kGradients, kTable, kNorm, kFirstFree };

  // Sums the bucket's gradients, weighted already, over all workers: into what update() needs.
  virtual Task<> sum(int bucket) = 0;

  // Backward has ended, and all sums have been started: applies them, as `context` says, when they
  // are there. Clipping is not in it yet. With `context.skip` nobody has samples: gradients are
  // cleared and nobody is asked about them.
  virtual Task<> apply(UpdateContext context) = 0;

  // The squared norm of the sum over all workers, when it is there: each worker adds up its own
  // shards, whoever holds the others.
  Task<double> squared_norm_of_sum();

  // Waits for the sum of one bucket, and for all.
  Task<> summed(int bucket) const;
  Task<> all_summed() const;

  Span gradients(Range range) const { return worker_.arena().gradients().at(range); }
  Wire wire() const { return options_.wire; }

  // A bucket's operation, started at `begin`, has ended. `free` is when the one before it in the
  // lane had: they take turns, so it was under way from the later of the two on.
  void trace_turn(Lane lane, int bucket, Time begin, Time& free);

  // Only between steps, and on all workers between the same two.
  void set_plan(const BucketPlan& plan) { plan_ = plan; }

  // See StepTable.
  void tell(std::int64_t number) { table_.tell(number); }
  std::int64_t told() const { return table_.told(); }

 private:
  void sum_all_buckets();
  void sum_ready_buckets();
  Task<> weigh_and_sum(int bucket);
  Task<> apply_sums(UpdateContext context);

  Options options_;
  BucketPlan plan_;
  StepTable table_;
  bool in_step_ = false;
  bool sending_ = false;  // this step's weight is known
  int next_ = 0;          // the bucket to be summed next
  std::vector<bool> ready_;
  std::vector<ScopedJob> sums_;       // one per bucket that was started in this step
  std::vector<std::int64_t> shares_;  // the last split, kept while it is good enough
};

}  // namespace skein
