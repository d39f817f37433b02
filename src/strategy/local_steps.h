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
  // counted. Workers may come with different rounds on their way. Does nothing if nobody has made a
  // step since the last time: all workers have made one, or none.
  Task<> flush() override;

  // Workers come here after the same round, when nothing is on its way.
  Task<> settle() override { co_return; }
  bool equal_replicas() const override { return worker_.size() == 1; }

  // The mean over the workers.
  Task<> whole_state(OptimizerState& state) override;

  nlohmann::json figures() const override;
  nlohmann::json step_figures() const override;
  std::string summary() const override;

 protected:
  enum : Channel { kModels, kNotes };

  // `snapshot` is the plane for s, or the parameters themselves where no step is made while a round
  // is on its way. With `average_state` the optimizer's state is averaged too, at the price of one
  // more plane for each of its vectors; the mean then takes the place of what each worker had.
  LocalSteps(Worker& worker, Span snapshot, bool average_state);

  // This worker's update from its own gradients. Alone it counts the samples too.
  Task<> local_step(std::int64_t samples);

  // One step of synchronous SGD: the same update, from everybody's gradients, on all workers.
  // Requires equal models and nothing on its way.
  Task<> synchronous_step(std::int64_t samples);

  // Sends the model on its way; and takes the mean in.
  void post(bool settling = false);
  Task<> merge();

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

  bool pauses() const { return snapshot_.data == worker_.arena().parameters().data; }
  static std::vector<Averaged> averaged_state(Worker& worker, bool wanted);
  std::vector<Span> planes() const;
  Task<> update(float gradient_scale);
  void take_in_mean();

  BucketPlan plan_;
  Span snapshot_;  // s
  Span mean_;      // a
  std::vector<Averaged> averaged_;
  Round round_;
  std::int64_t samples_ = 0;  // of this worker, not sent yet
  std::int64_t steps_since_post_ = 0, steps_since_merge_ = 0;
  Time merged_at_;
  bool settled_ = false;  // replicas are equal, and all samples counted

  std::int64_t rounds_ = 0;
  Histogram steps_between_merges_;
  std::int64_t last_steps_ = 0;
  double own_distance_ = 0;  // ‖s − a‖² of the last round
  double consensus_ = 0;     // its mean over the workers, known a round later
};

}  // namespace skein
