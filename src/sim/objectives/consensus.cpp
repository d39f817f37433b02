#include "core/rng.h"
#include "sim/objectives/kinds.h"

namespace skein::sim {
namespace {

class ConsensusReplica final : public Replica {
 public:
  ConsensusReplica(std::size_t dimension, Rng rng) : arena_({{"x", dimension}}, allocate_on_heap) {
    for (float& x : arena_.parameters().at({0, dimension}).host())
      x = static_cast<float>(rng.normal());
  }

  Arena& arena() override { return arena_; }

  void gradient(std::int64_t samples) override {
    SKEIN_CHECK(samples >= 1, "gradient of {} samples", samples);
  }
  double loss() const override { return 0; }

 private:
  Arena arena_;
};

class Consensus final : public Objective {
 public:
  explicit Consensus(const ObjectiveOptions& options)
      : rng_(options.seed),
        workers_(options.workers),
        dimension_(options.dimension ? static_cast<std::size_t>(options.dimension) : 8) {}

  std::unique_ptr<Replica> replica(int rank) override {
    SKEIN_CHECK(rank >= 0 && rank < workers_, "rank {} of {} workers", rank, workers_);
    return std::make_unique<ConsensusReplica>(dimension_,
                                              rng_.split(static_cast<std::uint64_t>(rank)));
  }

  std::optional<Quality> evaluate(Span) override { return std::nullopt; }

 private:
  Rng rng_;
  int workers_;
  std::size_t dimension_;
};

}  // namespace

std::unique_ptr<Objective> make_consensus(const ObjectiveOptions& options) {
  return std::make_unique<Consensus>(options);
}

}  // namespace skein::sim
