// What strategies share in which every worker makes updates of its own, with samples of its own,
// and the models are averaged in rounds.
//
//   s = copy of x;   a = mean over workers of s;   x += a − s
//
// A driver's step is one local update. Global samples are counted when a round is merged, so that
// they are the same on all workers after the same round: evaluations and the end of a run hang on
// them. The learning rate moves on with every step: between merges each worker estimates by its own
// samples how many all have trained on. progress.steps counts this worker's own updates. Alone it
// is plain SGD.
#pragma once

#include <array>
#include <vector>

#include "strategy/histogram.h"
#include "strategy/outer_momentum.h"
#include "strategy/round.h"
#include "strategy/strategy.h"

namespace skein {

class LocalSteps : public Strategy {
 public:
  const BucketPlan& plan() const override { return plan_; }
  Task<> begin_step(std::int64_t samples) override;
  void gradient_ready(int) override {}

  // Merges what is on its way and averages: all models are bit-equal afterwards and all samples
  // counted. Workers may come with different rounds on their way, and some long before others: a
  // worker that is here takes part in the rounds of those who still make steps.
  Task<> flush() override;

  // Workers come here after the same round, when nothing is on its way.
  Task<> settle() override { co_return; }
  bool replicas_differ() const override { return worker_.size() > 1 && !settled_; }

  SharedState shared_state() override { return outer_.shared_state(); }

  // What this worker's part of a round was, and how many steps of its period it has made: flush()
  // begins no new one.
  std::vector<std::int64_t> own_words() const override;
  void restore_own(const std::vector<std::int64_t>& words) override;

  nlohmann::json figures() const override;
  nlohmann::json step_figures() const override;
  std::string summary() const override;

 protected:
  enum : Channel { kModels, kNotes };

  static constexpr const char* kPeriodText =
      "local steps from one average of the models to the next";

  struct Options {
    bool pauses = false;         // no step is made while a round is on its way
    std::int64_t warmup = 0;     // the first so many samples by synchronous SGD
    bool average_state = false;  // the optimizer's state too, at the price of one more plane for
                                 // each of its vectors; the mean takes the place of what each had
    double outer_momentum = 0;   // of the mean of the models (outer_momentum.h)
  };

  // Without pauses it takes a plane for s besides the one for a.
  LocalSteps(Worker& worker, const StrategyTraits& traits, const Options& options);

  // Whether steps are still synchronous: the same on all workers after the same round.
  bool warming_up() const {
    return worker_.size() > 1 && worker_.progress.samples < options_.warmup;
  }

  // One step of synchronous SGD: the same update, from everybody's gradients, on all workers.
  // Requires that nothing is on its way.
  Task<> synchronous_step(std::int64_t samples);

  // This worker's update from its own gradients. Alone it counts the samples too. Without samples
  // it only clears the gradients.
  Task<> local_step(std::int64_t samples);

  // Sends the model on its way; and takes the mean in.
  void post(bool settling = false);
  Task<RoundNotes> merge();

  // Whether this worker has done its part of a whole run since it last heard of the others: then it
  // is time, however long the period.
  bool part_done() const;

  const Round& round() const { return round_; }
  std::int64_t steps_in_period() const { return steps_in_period_; }
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
  Task<> average(Span values) override;
  Task<> update(float gradient_scale);
  Task<RoundNotes> synchronous_round(const RoundNotes& own);
  void take_in_mean();
  void follow_schedule();
  void learn_share(const RoundNotes& all);

  Options options_;
  BucketPlan plan_;
  Span snapshot_;  // s, where it is not the parameters themselves
  Span mean_;      // a, times the number of workers
  std::vector<Averaged> averaged_;
  OuterMomentum outer_;
  Round round_;
  std::int64_t samples_ = 0;       // of this worker, not sent yet
  std::int64_t sent_samples_ = 0;  // of this worker, in the round on its way
  std::int64_t steps_since_post_ = 0, steps_since_merge_ = 0;
  std::int64_t steps_in_period_ = 0;  // since the last merge that was no flush's
  Time merged_at_;                    // of that merge
  bool in_step_ = false;              // the gradients are those of a step that has not ended
  bool settled_ = true;               // this worker has nothing that the others do not have

  // How many samples all workers had for each of this worker's, in the last round and the one
  // before it. The smaller one counts: after a round in which this worker stood still its own
  // samples would stand for far too many. What is too few a merge makes good.
  std::array<double, 2> shares_;
  std::int64_t reached_ = 0;  // samples to which the schedule has come since the last flush

  std::int64_t rounds_ = 0;
  Histogram steps_between_merges_;
  std::int64_t last_steps_ = 0;
  Figure distance_ = 0;      // ‖s − a‖² of the last round
  double own_distance_ = 0;  // the last that is known
  double consensus_ = 0;     // its mean over the workers, known a round later
};

}  // namespace skein
