// No communication of all with all: every worker computes gradients at its own pace and, beside
// that, averages with one neighbour of a graph at a time. `acid` (A²CiD²) adds a continuous
// momentum x̃, which does on a large graph what a higher rate of averagings would do.
//
//   dx = η (x̃ − x) dt − lr · g dN − ½ Σ_j (x − x_j) dM_j
//   dx̃ = η (x − x̃) dt − lr · g dN − α̃ Σ_j (x − x_j) dM_j        x̃ = x at the start
//
// Alone it is plain SGD. A worker that dies is missed by nobody but its neighbours, who go on
// without it.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>

#include "fabric/survivors.h"
#include "strategy/gossip/assembly.h"
#include "strategy/gossip/averaging_clock.h"
#include "strategy/gossip/exchanges.h"
#include "strategy/gossip/gossip_plan.h"
#include "strategy/gossip/pairing.h"
#include "strategy/strategy.h"

namespace skein {

class Gossip final : public Strategy,
                     private Pairing::Host,
                     private Exchanges::Host,
                     private Assembly::Host {
 public:
  static constexpr StrategyTraits kTraits{
      .waits_for = "nobody",
      .updates = "local steps, and averages with one neighbour at a time",
      .does = "averages with one neighbour at a time, beside the computation",
      .lockstep = false,
      .equal_replicas = false,
      .synchronous = false,
      .repeats = false,
      .survives_losses = true,
      .needs_graph = true,
      .planes = 2,
      .price = 3,
      .letter = 'G'};
  static constexpr StrategyTraits kAcidTraits = [] {
    StrategyTraits traits = kTraits;
    traits.updates =
        "local steps, and averages with one neighbour at a time, with a continuous momentum";
    traits.planes = 3;
    traits.letter = 'C';
    return traits;
  }();

  Gossip(Worker& worker, const StrategyTraits& traits, std::shared_ptr<const GossipPlan> plan);
  ~Gossip() override;

  const BucketPlan& plan() const override { return plan_; }
  bool replicas_differ() const override { return peers_ && !flushed_; }
  void expect(std::int64_t /*samples*/) override { wake(); }
  Task<> begin_step(std::int64_t samples) override;
  void gradient_ready(int) override {}
  Task<> end_step(std::int64_t samples) override;
  Task<> settle() override;

  // All workers come together, however far apart they are, and go on from the mean of their models.
  // What is written to the parameters until the next step counts. (Between other steps it does not:
  // the model is elsewhere then.)
  Task<> flush() override;
  std::vector<std::int64_t> own_words() const override;
  void restore_own(const std::vector<std::int64_t>& words) override;
  Task<> background() override;
  bool read_model(Span into) const override;
  nlohmann::json figures() const override;
  nlohmann::json step_figures() const override;
  std::string summary() const override;

 private:
  enum : Channel { kPairing, kModels, kUp, kDown, kAssembly, kRing };

  // What only a worker with peers has.
  struct Peers;

  bool is_free_for(int peer) const override;
  bool is_stuck_with(int peer) const override;
  void agreed(int peer, bool own_proposal) override;
  void lost(int peer) override;
  void drop(int peer);
  void failed(int peer) override;
  void absent(int rank) override;
  void broke(std::exception_ptr error) override;

  void wake();
  bool is_busy(bool with_late_ones) const;
  Task<> come_to_rest(bool even_late_ones);
  Task<> update();
  Task<> wait_for_news();
  void refresh();
  void count_samples(std::int64_t samples);
  void take_down_samples(std::int64_t known);
  void rethrow() const;
  Task<> catch_up();
  Task<> average(Span values) override;
  bool has_models() const;
  std::int64_t lag() const;
  std::vector<int> missing() const;

  std::shared_ptr<const GossipPlan> gossip_;
  BucketPlan plan_;
  std::unique_ptr<Peers> peers_;
  std::int64_t counted_ = 0;  // how many of the tally's samples progress has in it
  bool started_ = false, settled_ = true;
  bool flushed_ = true;     // the arena's parameters are the model, and the same on all
  bool gathered_ = false;   // all have come to a flush, and this worker has not gone on since
  std::vector<int> left_;   // who has left since then
  std::int64_t begun_ = 0;  // averagings that this worker proposed and somebody accepted
  std::int64_t most_lag_ = 0;
  std::optional<double> consensus_;  // mean squared distance from the mean, at the last flush
};

}  // namespace skein
