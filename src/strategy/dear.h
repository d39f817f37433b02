// DeAR: synchronous SGD whose all-reduce is split in two. The reduce-scatter of a bucket hides
// behind backward, the all-gather behind the next forward.
//
// Each worker updates its own shard of every bucket with its own part of the optimizer's state, and
// the all-gathers carry the updated parameters. The parameters after any step have the bits of
// AllReduce with the same plan.
//
// With wire = bf16 the gathered parameters are rounded, on all workers alike, and each worker keeps
// those of its own shards, which it updates, in full precision besides. flush() gathers these.
#pragma once

#include <exception>
#include <memory>
#include <optional>

#include "plan/tuner.h"
#include "strategy/masters.h"
#include "strategy/synchronous.h"

namespace skein {

class Dear final : public Synchronous {
 public:
  struct Options : Synchronous::Options {
    bool tune = true;     // fusion = auto: find the bucket size while training, from fusion_start
    int trial_steps = 5;  // steps that a size is judged by

    Options() = default;
    explicit Options(OptionReader& reader);
  };

  static constexpr StrategyTraits kTraits{
      .waits_for =
          "all for the slowest, every step; the network is hidden behind backward and "
          "forward",
      .updates = "synchronous SGD, bit for bit that of `allreduce`",
      .does = "hides its communication behind the next forward too",
      .price = 1,
      .letter = 'D'};

  Dear(Worker& worker, const Options& options);

  Task<Mark> need(int bucket) override;
  Task<> begin_step(std::int64_t samples) override;
  Task<> flush() override;
  void after_flush() override;
  void arena_changed() override;
  nlohmann::json figures() const override;
  std::string summary() const override;
  Task<> stream_state(int to, const TakeState& take) override;
  Task<> take_over_state(Optimizer& from, const BucketPlan& before,
                         const std::vector<Placed>& placed) override;

 private:
  enum : Channel { kParameters = kFirstFree, kMoves };

  Range own_shard(int bucket) const;
  Span parameters() const { return worker_.arena().parameters(); }
  bool rounds() const { return wire() == Wire::bf16 && worker_.size() > 1; }
  void own_shards();
  void time_step();
  void skip_known_plans();
  Task<> change_plan(std::size_t bucket_bytes);
  Task<> sum(int bucket) override;
  Task<> apply(UpdateContext context) override;
  Task<> update_and_gather(UpdateContext context, bool prepared);
  Task<> update_all(UpdateContext& context, bool prepared);
  std::size_t piece() const;
  Task<> update_own_shard(int bucket, const UpdateContext& context);
  Task<> clear_other_shards(int bucket);
  Task<> gather(int bucket);
  Task<> all_arrived();
  Task<> exact_parameters();
  Task<> prepare(UpdateContext& context, bool show);
  void ended_for(int bucket);
  void failed();

  Masters masters_;       // only where it rounds()
  bool rounded_ = false;  // the parameters are, or are about to be, those rounded; else exact
  bool restore_ = false;  // they were when the step under way ended

  Signal changed_;            // a bucket arrived, or the step failed
  std::vector<int> pending_;  // of each bucket: what must end before its next forward and backward
  std::vector<Mark> there_;   // and where on the queue the last of it is
  std::exception_ptr error_;  // why they never will be
  ScopedJob updating_;        // of the last step
  std::vector<ScopedJob> gathers_;
  Time scatters_free_{}, gathers_free_{};

  int trial_steps_;
  std::optional<FusionTuner> tuner_;  // of rank 0, while there is something to tune
  std::size_t bucket_bytes_;          // of the plan
  Time last_step_{};
  std::vector<double> step_seconds_;  // of the trial under way
};

}  // namespace skein
