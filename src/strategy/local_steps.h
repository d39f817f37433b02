// What strategies share in which every worker makes updates of its own, with samples of its own,
// and the models are averaged in rounds.
//
//   s = copy of x;   a = mean over workers of s;   x += a − s
//
// A driver's step is one local update. Global samples are counted when a round is merged, so that
// they are the same on all workers after the same round: learning rate, evaluations and the end of
// a run hang on them. progress.steps counts this worker's own updates. Alone it is plain SGD.
#pragma once

#include <vector>

#include "strategy/histogram.h"
#include "strategy/outer_momentum.h"
#include "strategy/round.h"
#include "strategy/strategy.h"

namespace skein {

class LocalSteps : public Strategy {
 public:
  const BucketPlan& plan() const override { return plan_; }
  bool lockstep() const override { return false; }
  Task<> begin_step(std::int64_t samples) override;
  void gradient_ready(int) override {}

  // Merges what is on its way and averages: all models are bit-equal afterwards and all samples
  // counted. Workers may come with different rounds on their way, and some long before others: a
  // worker that is here takes part in the rounds of those who still make steps.
  Task<> flush() override;

  // Workers come here after the same round, when nothing is on its way.
  Task<> settle() override { co_return; }
  bool equal_replicas() const override { return worker_.size() == 1; }

  // The mean over the workers.
  Task<> whole_state(OptimizerState& state) override;
  Task<> stream_state(int to, const TakeState& take) override;

  nlohmann::json figures() const override;
  nlohmann::json step_figures() const override;
  std::string summary() const override;

 protected:
  enum : Channel { kModels, kNotes };

  struct Options {
    bool pauses = false;         // no step is made while a round is on its way
    std::int64_t warmup = 0;     // the first so many samples by synchronous SGD
    bool average_state = false;  // the optimizer's state too, at the price of one more plane for
                                 // each of its vectors; the mean takes the place of what each had
    double outer_momentum = 0;   // of the mean of the models; flush() ends it
  };

  // Without pauses it takes a plane for s besides the one for a.
  LocalSteps(Worker& worker, const Options& options);

  // Whether steps are still synchronous: the same on all workers after the same round.
  bool warming_up() const {
    return worker_.size() > 1 && worker_.progress.samples < options_.warmup;
  }

  // One step of synchronous SGD: the same update, from everybody's gradients, on all workers.
  // Requires that nothing is on its way.
  Task<> synchronous_step(std::int64_t samples);

  // This worker's update from its own gradients. Alone it counts the samples too.
  Task<> local_step(std::int64_t samples);

  // Sends the model on its way; and takes the mean in.
  void post(bool settling = false);
  Task<RoundNotes> merge();

  // Whether this worker has done its part of a whole run since it last heard of the others: then it
  // is time, however long the period.
  bool part_done() const;

  const Round& round() const { return round_; }
  std::int64_t steps_since_merge() const { return steps_since_merge_; }
  Time merged_at() const { return merged_at_; }

 private:
  // A vector of the optimizer's state and the plane in which it is averaged.
  struct Averaged {
    Span state, mean;
  };

  static Span plane(Worker& worker, const char* name, bool wanted);
  // In runs that simulate time alone there are none, and no distances.
  bool has_models() const { return mean_.device != Device::absent; }

  static std::vector<Averaged> averaged_state(Worker& worker, bool wanted);
  std::vector<Span> planes() const;
  Task<> average(Span values);
  Task<> update(float gradient_scale);
  Task<RoundNotes> synchronous_round(const RoundNotes& own);
  void take_in_mean();

  Options options_;
  BucketPlan plan_;
  Span snapshot_;  // s, where it is not the parameters themselves
  Span mean_;      // a, times the number of workers
  std::vector<Averaged> averaged_;
  OuterMomentum outer_;
  Round round_;
  std::int64_t samples_ = 0;  // of this worker, not sent yet
  std::int64_t steps_since_post_ = 0, steps_since_merge_ = 0;
  Time merged_at_;
  bool in_step_ = false;  // the gradients are those of a step that has not ended
  bool settled_ = true;   // this worker has nothing that the others do not have

  std::int64_t rounds_ = 0;
  Histogram steps_between_merges_;
  std::int64_t last_steps_ = 0;
  Figure distance_ = 0;      // ‖s − a‖² of the last round
  double own_distance_ = 0;  // the last that is known
  double consensus_ = 0;     // its mean over the workers, known a round later
};

}  // namespace skein
