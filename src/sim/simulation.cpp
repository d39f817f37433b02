#include "sim/simulation.h"

#include <algorithm>
#include <chrono>

#include "kernels/kernels.h"
#include "optimize/absent.h"

namespace skein::sim {
namespace {

// A model that has only a size.
class ShapeReplica final : public Replica {
 public:
  explicit ShapeReplica(const std::vector<Arena::Parameter>& parameters)
      : arena_(parameters, allocate_absent) {}
  Arena& arena() override { return arena_; }
  void gradient(std::int64_t) override {}
  double loss() const override { return 0; }

 private:
  Arena arena_;
};

std::vector<Arena::Parameter> parameters_of(const Profile& profile) {
  std::vector<Arena::Parameter> parameters;
  for (const Layer& layer : profile.layers)
    for (const std::int64_t count : layer.parameters)
      parameters.push_back({layer.name, static_cast<std::size_t>(count)});
  return parameters;
}

class Simulation final : public VirtualWorker::Listener {
 public:
  Simulation(const Scenario& scenario, Objective* objective,
             const std::function<Trace&(int)>& trace_of,
             const std::function<void(const Moment&)>& tell)
      : scenario_(scenario),
        objective_(objective),
        on_queue_(queue()),
        trace_of_(trace_of),
        tell_(tell),
        make_strategy_(prepare_strategy(scenario.strategy, scenario.strategy_settings,
                                        scenario.workers, scenario.seed)),
        cluster_(scenario.workers, scenario.network, scenario.seed, queue()) {
    if (!objective_)
      scenario_.optimizer = [](std::size_t size, const Allocate&) { return make_absent(size); };
    const auto parameters = parameters_of(scenario_.profile);
    for (int rank = 0; rank < scenario_.workers; ++rank) {
      replicas_.push_back(objective_ ? objective_->replica(rank)
                                     : std::make_unique<ShapeReplica>(parameters));
      workers_.push_back(make_worker(rank));
    }
  }

  // Jobs refer to the workers, so they go first.
  ~Simulation() override {
    for (int rank = 0; rank < scenario_.workers; ++rank) cluster_.engine().stop(rank);
  }

  Report run() {
    const auto begin = std::chrono::steady_clock::now();
    for (const auto& worker : workers_) start(*worker);
    for (const Fault& fault : scenario_.faults)
      cluster_.engine().schedule(Time() + fault.at, [this, &fault] { inject(fault); });
    observe();
    if (scenario_.observe_time.count() > 0) observe_regularly();
    Engine::Limits limits;
    limits.events = scenario_.most_events;
    if (scenario_.time.count() > 0) limits.until = Time() + scenario_.time;
    const auto end = cluster_.engine().run([this] { return finished(); }, limits);
    observe_end();
    collect(end);
    report_.wall_seconds =
        std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    return std::move(report_);
  }

 private:
  Queue* queue() const { return objective_ ? objective_->queue() : nullptr; }

  std::unique_ptr<VirtualWorker> make_worker(int rank) {
    return std::make_unique<VirtualWorker>(cluster_, rank, scenario_, make_strategy_,
                                           *replicas_[static_cast<std::size_t>(rank)],
                                           trace_of_(rank), *this);
  }

  void start(VirtualWorker& worker) {
    ++running_;
    worker.start();
  }

  VirtualWorker& worker(int rank) const { return *workers_[static_cast<std::size_t>(rank)]; }

  // All have ended, and nothing is to come that could start one again.
  bool finished() const {
    if (reached_) return true;
    return running_ == 0 && restarts_ == 0;
  }

  void ended(int) override { --running_; }

  void stepped(int rank) override {
    if (rank != 0) return;
    const std::int64_t samples = worker(0).worker().progress.samples;
    tell_({cluster_.engine().now() - Time(), samples, cluster_.engine().events()});
    if (scenario_.observe_samples <= 0) return;
    // At the end of this instant, when all have made the step that ends in it.
    if (samples / scenario_.observe_samples > observed_samples_ / scenario_.observe_samples)
      cluster_.engine().schedule(cluster_.engine().now(), [this] { observe(); });
    observed_samples_ = samples;
  }

  void observe_regularly() {
    cluster_.engine().schedule(cluster_.engine().now() + scenario_.observe_time, [this] {
      observe();
      if (!finished()) observe_regularly();
    });
  }

  std::vector<int> present() const;
  Span model_of(int rank, Span space);
  double find_mean(const std::vector<int>& ranks, Span mean);
  void observe();
  void observe_end();
  void inject(const Fault& fault);
  void start_fault(const Fault& fault, int rank);
  void restart(int rank);
  void collect(Engine::End end);

  Scenario scenario_;
  Objective* objective_;
  OnQueue on_queue_;
  const std::function<Trace&(int)>& trace_of_;
  const std::function<void(const Moment&)>& tell_;
  MakeStrategy make_strategy_;
  std::vector<std::unique_ptr<Replica>> replicas_;
  Cluster cluster_;
  std::vector<std::unique_ptr<VirtualWorker>> retired_;  // before a restart
  std::vector<std::unique_ptr<VirtualWorker>> workers_;
  Report report_;
  std::int64_t observed_samples_ = 0;
  bool reached_ = false;
  std::set<int> taken_;
  int running_ = 0;
  int restarts_ = 0;  // under way
};

// Whose process no fault has ended.
std::vector<int> Simulation::present() const {
  std::vector<int> ranks;
  for (int rank = 0; rank < scenario_.workers; ++rank)
    if (worker(rank).outcome().kind != Outcome::Kind::crashed) ranks.push_back(rank);
  return ranks;
}

// Where it is, or in `space`.
Span Simulation::model_of(int rank, Span space) {
  const bool apart = worker(rank).strategy().read_model(space);
  return apart ? space : worker(rank).replica().arena().parameters();
}

// The mean of the models that are there, and their mean squared distance from it. Equal models have
// exactly themselves as their mean: it is the first one and what the others differ from it by.
double Simulation::find_mean(const std::vector<int>& ranks, Span mean) {
  const Allocate allocate = allocator_of(queue());
  const auto space = allocate(mean.count), first_space = allocate(mean.count);
  const auto share = static_cast<double>(1) / static_cast<double>(ranks.size());
  const Span first = model_of(ranks.front(), first_space->span());
  for (const int rank : ranks) add_difference(mean, model_of(rank, space->span()), first);
  scale(mean, static_cast<float>(share));
  add(mean, first);
  std::vector<Figure> distances;
  distances.reserve(ranks.size());
  for (const int rank : ranks)
    distances.push_back(squared_distance(model_of(rank, space->span()), mean));
  if (queue()) queue()->finish();
  double sum = 0;
  for (const double each : distances) sum += each;
  return sum * share;
}

void Simulation::observe() {
  if (!objective_) return;
  const std::vector<int> ranks = present();
  if (ranks.empty()) return;
  const auto mean = allocator_of(queue())(worker(0).replica().arena().size());
  Observation seen{.time = cluster_.engine().now() - Time(),
                   .samples = worker(0).worker().progress.samples,
                   .consensus = find_mean(ranks, mean->span()),
                   .quality = {}};
  seen.quality = objective_->evaluate(mean->span());
  if (seen.quality && !report_.target) {
    const bool loss = scenario_.target_loss > 0 && seen.quality->loss <= scenario_.target_loss;
    const bool accuracy = scenario_.target_accuracy > 0 && seen.quality->accuracy &&
                          *seen.quality->accuracy >= scenario_.target_accuracy;
    if (loss || accuracy) report_.target = seen.time;
    reached_ = report_.target.has_value();
  }
  report_.observations.push_back(seen);
}

// What is seen at the very end is the last word on it. It does not take the place of what reached
// the target, which is of the models before their last merge and may be a little better.
void Simulation::observe_end() {
  auto& seen = report_.observations;
  const Duration now = cluster_.engine().now() - Time();
  if (!seen.empty() && seen.back().time == now && report_.target != now) seen.pop_back();
  observe();
}

void Simulation::inject(const Fault& fault) {
  using Kind = Fault::Kind;
  Engine& engine = cluster_.engine();
  engine.record(Cluster::kFault, static_cast<std::uint64_t>(fault.kind));
  if (fault.kind == Kind::partition) {
    const int number = cluster_.partition(fault.ranks);
    if (fault.lasting.count() > 0)
      engine.schedule(engine.now() + fault.lasting, [this, number] { cluster_.heal(number); });
    return;
  }
  for (const int rank : fault.ranks) start_fault(fault, rank);
}

void Simulation::start_fault(const Fault& fault, int rank) {
  using Kind = Fault::Kind;
  Engine& engine = cluster_.engine();
  const auto later = [&](std::function<void()> action) {
    if (fault.lasting.count() > 0) engine.schedule(engine.now() + fault.lasting, std::move(action));
  };
  switch (fault.kind) {
    case Kind::crash:
    case Kind::vanish:
    case Kind::restart:
      if (!cluster_.running(rank)) return;
      cluster_.end_process(rank, fault.kind == Kind::vanish ? "" : "which died");
      worker(rank).crashed();
      taken_.insert(rank);
      if (fault.kind == Kind::restart) {
        ++restarts_;
        engine.schedule(engine.now() + fault.lasting, [this, rank] { restart(rank); });
      }
      return;
    case Kind::pause:
      cluster_.pause(rank);
      return later([this, rank] { cluster_.resume(rank); });
    case Kind::delay:
      cluster_.add_delay(rank, fault.extra);
      return later([this, rank, extra = fault.extra] { cluster_.add_delay(rank, -extra); });
    case Kind::slow: {
      // A process that was started anew meanwhile is not the one that was slow.
      Pace& pace = worker(rank).pace();
      pace.fault_factor *= fault.factor;
      return later([&pace, factor = fault.factor] { pace.fault_factor /= factor; });
    }
    case Kind::partition:
      return;
  }
}

void Simulation::restart(int rank) {
  --restarts_;
  cluster_.restart_process(rank);
  auto& place = workers_[static_cast<std::size_t>(rank)];
  retired_.push_back(std::move(place));
  place = make_worker(rank);
  start(*place);
}

void Simulation::collect(Engine::End end) {
  Time first = kNever, last{};
  Time first_failure = kNever;
  for (int rank = 0; rank < scenario_.workers; ++rank) {
    VirtualWorker& each = worker(rank);
    report_.workers.push_back({each.outcome(), each.figures(), cluster_.fabric(rank).bytes_sent(),
                               each.strategy().figures(), taken_.contains(rank)});
    const Outcome& outcome = each.outcome();
    if (outcome.kind == Outcome::Kind::failed && outcome.at < first_failure) {
      first_failure = outcome.at;
      report_.first_failed = rank;
    }
    first = std::min(first, each.figures().first_step);
    last = std::max(last, each.figures().last_step);
    report_.samples += each.figures().samples;
  }
  for (const Slot& slot : replicas_.front()->arena().slots())
    report_.parameters += static_cast<std::int64_t>(slot.range.count);
  report_.hung = (end == Engine::End::idle || end == Engine::End::events) && !finished();
  report_.time = cluster_.engine().now() - Time();
  if (last > first)
    report_.samples_per_second = static_cast<double>(report_.samples) / seconds(last - first);
  report_.events = cluster_.engine().events();
  report_.hash = cluster_.engine().hash();
  report_.summary = worker(0).strategy().summary();
  if (objective_) report_.device_memory = objective_->device_memory();
}

}  // namespace

std::set<int> Report::lost() const {
  std::set<int> ranks;
  for (const WorkerReport& each : workers) {
    const int peer = each.outcome.peer;
    if (peer < 0) continue;
    const WorkerReport& named = workers[static_cast<std::size_t>(peer)];
    if (named.taken || named.outcome.kind != Outcome::Kind::failed) ranks.insert(peer);
  }
  return ranks;
}

Report simulate(const Scenario& scenario, Objective* objective,
                const std::function<Trace&(int rank)>& trace_of,
                const std::function<void(const Moment&)>& tell) {
  return Simulation(scenario, objective, trace_of, tell).run();
}

Report simulate(const Scenario& scenario, Objective* objective) {
  NoTrace none;
  const std::function<Trace&(int)> trace_of = [&none](int) -> Trace& { return none; };
  return simulate(scenario, objective, trace_of, [](const Moment&) {});
}

}  // namespace skein::sim
