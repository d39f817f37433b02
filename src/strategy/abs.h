// ABS-SGD: delayed synchronous SGD with an adaptive batch size. Nobody waits: while one global sum
// of gradients is on its way, every worker goes on computing micro-batches at the present weights,
// as many as it manages. A step of the driver is one micro-batch; weights change only when a round
// ends.
//
//   w_{k+1} = w_k − rate · G_{k−1} / n_{k−1}
//
// with G the sum over all samples that all workers computed in a round, and n their number. Every
// worker posts one sum per round in the same order, so replicas stay bit-equal. Alone it is plain
// SGD.
//
// With `lookahead` a worker computes not at w_k, but where it expects the weights to be when its
// gradients are applied: p = a step of the optimizer from w_k with its own part of the round that
// is on its way, which changes no state. Then the arena's parameters are p, each worker's own, and
// w is in a plane beside them. That step is prepared as the last update was: scaled and clipped
// alike, and not made where that was skipped, or where the own part is not finite. Whoever writes
// to parameters that are ahead gets a ConfigError at the end of the round.
//
// Without a delay, where that costs little (delay.h), workers wait for the sum of a round and apply
// it at once: w_{k+1} = w_k − rate · G_k / n_k.
#pragma once

#include <optional>

#include "optimize/preview.h"
#include "strategy/delay.h"
#include "strategy/histogram.h"
#include "strategy/option_reader.h"
#include "strategy/round.h"
#include "strategy/strategy.h"

namespace skein {

class Abs final : public Strategy {
 public:
  struct Options {
    enum class Scaling : std::uint8_t { none, linear, sqrt };
    Scaling lr_scaling = Scaling::none;    // of the learning rate by a round's samples
    std::int64_t reference_batch = 0;      // to which they compare; 0: the first round's
    std::int64_t warmup_rounds = 0;        // the first so many without delay
    std::int64_t max_micro_batches = 256;  // of a worker in one round; then it waits

    // What of the own gradient takes part in a look ahead: nothing is looked at; nothing, momentum
    // alone; one part of as many as there are workers; all of it. Automatic: all of it where the
    // optimizer has a momentum, which smooths it, and else that part.
    enum class Lookahead : std::uint8_t { none, momentum, share, own, automatic };
    Lookahead lookahead = Lookahead::automatic;
    Delay::Kind delay = Delay::Kind::automatic;

    Options() = default;
    explicit Options(OptionReader& reader);
  };

  static constexpr StrategyTraits kTraits{
      .waits_for =
          "nobody, unless the sum takes longer than the slowest worker's micro-batch; "
          "where sums come at once, all for the sum",
      .updates =
          "a sum of gradients of the round before, taken where the worker expects the "
          "weights to be; where sums come at once, of this round",
      .does = "computes on while gradients are summed and never waits",
      .lockstep = false,
      .synchronous = false,
      .repeats = false,
      .planes = 3,
      .price = 1,
      .letter = 'B'};

  Abs(Worker& worker, const Options& options);

  const BucketPlan& plan() const override { return plan_; }
  bool replicas_differ() const override { return ahead_; }
  Task<> begin_step(std::int64_t samples) override;
  void gradient_ready(int) override {}
  Task<> end_step(std::int64_t samples) override;

  // This worker makes no more steps until all have come here: until then it takes part in the
  // rounds of the others with what it has gathered, and then with nothing.
  Task<> flush() override;

  // The weights, where workers look ahead of them.
  bool read_model(Span into) const override;
  nlohmann::json figures() const override;
  nlohmann::json step_figures() const override;
  std::string summary() const override;

 private:
  enum : Channel { kGradients, kNotes };

  // What is gathered at the present weights: Σ samples · gradient.
  struct Batch {
    std::int64_t samples = 0;
    std::int64_t micro_batches = 0;
    Duration compute{};      // what they took
    std::int64_t round = 0;  // in which it was computed
  };

  void gather(std::int64_t samples);
  void part_of_update(Time begin);
  bool goes_on() const;
  bool warming_up() const { return worker_.progress.steps < options_.warmup_rounds; }
  bool delayed() const { return delay_.on() && !warming_up(); }
  void send_batch(bool settling, bool delayed);
  Task<> end_round();
  Task<RoundNotes> take_round();
  Task<RoundNotes> catch_up(std::int64_t age);
  Task<> apply(const RoundNotes& sum, std::int64_t age);
  Task<> update(std::int64_t samples, float gradient_scale);
  Task<> look_ahead();
  Task<> look_back();
  std::int64_t expected_samples() const;
  double own_part() const;
  double scaled_rate(std::int64_t samples) const;

  Options options_;
  BucketPlan plan_;
  Span gathered_;  // of the batch
  Span sum_;       // the plane on its way
  Span weights_;   // while parameters are ahead of them
  bool ahead_ = false;
  Figure distance_ahead_ = 0;  // squared, of the parameters from the weights
  Preview preview_;
  Round round_;
  Delay delay_;
  Duration waited_{};          // for the last round; with a delay, what it would have been
  std::int64_t decision_ = 0;  // see Worker: of the update before that of the last round taken
  bool in_step_ = false;       // gradients of a micro-batch come that is not counted yet
  Batch batch_, sent_;
  std::int64_t rounds_ = 0;

  Histogram micro_batches_;  // how many rounds had so many, here
  Histogram round_samples_;  // … over all workers
  Histogram staleness_;      // how many updates were so many rounds old
  std::int64_t last_micro_batches_ = 0, last_samples_ = 0;
};

}  // namespace skein
