#include "sim/virtual_worker.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "plan/shares.h"
#include "skein/error.h"

namespace skein::sim {
namespace {

Duration scaled(Duration time, double factor) {
  return Duration(
      static_cast<Duration::rep>(std::floor(static_cast<double>(time.count()) * factor + 0.5)));
}

constexpr std::size_t kMostIterations = 100'000;  // whose times are kept

}  // namespace

Duration Scenario::mean_gradient() const {
  double rate = 0;
  for (int rank = 0; rank < workers; ++rank) rate += speed(rank);
  const Duration at_speed_1 =
      scaled(profile.forward() + profile.backward(),
             static_cast<double>(batch) / static_cast<double>(profile.batch));
  return scaled(at_speed_1, workers / rate);
}

VirtualWorker::VirtualWorker(Cluster& cluster, int rank, const Scenario& scenario,
                             const MakeStrategy& make_strategy, Replica& replica, Trace& trace,
                             Listener& listener)
    : cluster_(cluster),
      rank_(rank),
      scenario_(scenario),
      replica_(replica),
      listener_(listener),
      optimizer_(
          scenario.optimizer(replica.arena().size(), allocator_of(cluster.engine().queue()))),
      worker_(cluster.fabric(rank), replica.arena(), *optimizer_, scenario.learning_rate, time_,
              scenario.patience, scenario.clip, scenario.seed),
      strategy_(make_strategy(worker_)),
      driver_(worker_, *strategy_, time_, program_),
      compute_(scenario.profile, replica.arena()),
      pace_(scenario.speed(rank), scenario.jitter, scenario.slowdowns,
            Rng(scenario.seed).split(0x70616365).split(static_cast<std::uint64_t>(rank))) {
  time_.pass_on_to(&trace);
  worker_.budget = scenario.samples;
  worker_.modelled_update_seconds = seconds(scenario.profile.update) / scenario.speed(rank) /
                                    static_cast<double>(replica.arena().size());
}

VirtualWorker::~VirtualWorker() = default;

void VirtualWorker::start() {
  main_ = cluster_.spawn(rank_, whole());
  cluster_.spawn(rank_, background());
}

void VirtualWorker::crashed() {
  if (outcome_.kind == Outcome::Kind::running)
    end({Outcome::Kind::crashed, "killed by a fault", false, -1, now()});
}

Task<> VirtualWorker::background() {
  try {
    co_await strategy_->background();
  } catch (const Cancelled&) {
    throw;
  } catch (...) {
    background_error_ = std::current_exception();
    main_.cancel();
  }
}

Task<> VirtualWorker::whole() {
  try {
    try {
      co_await train();
      end({Outcome::Kind::completed, "", false, -1, now()});
    } catch (const Cancelled&) {
      if (!background_error_) throw;
      std::rethrow_exception(background_error_);
    }
  } catch (const IoError& error) {
    end({Outcome::Kind::failed, error.what(), true, error.peer(), now()});
  } catch (const Error& error) {
    end({Outcome::Kind::failed, error.what(), false, -1, now()});
  }
  // The process ends, but not from inside itself.
  cluster_.engine().schedule(now(),
                             [this] { cluster_.end_process(rank_, "which has left the run"); });
}

void VirtualWorker::end(const Outcome& outcome) {
  outcome_ = outcome;
  if (outcome.kind == Outcome::Kind::failed) cluster_.fabric(rank_).fail(outcome.error);
  listener_.ended(rank_);
}

Task<> VirtualWorker::train() {
  const std::int64_t budget =
      scenario_.samples > 0 ? scenario_.samples : std::numeric_limits<std::int64_t>::max();
  figures_.first_step = now();
  Time begin = now();
  while (worker_.progress.samples < budget && !worker_.all_stop) {
    const std::int64_t steps = worker_.progress.steps;
    co_await step();
    figures_.last_step = now();
    if (worker_.progress.steps > steps) {
      ++figures_.steps;
      if (figures_.iterations.size() < kMostIterations)
        figures_.iterations.push_back(now() - begin);
      begin = now();
    }
    cluster_.engine().record(Cluster::kStep, static_cast<std::uint64_t>(rank_),
                             static_cast<std::uint64_t>(worker_.progress.samples));
    listener_.stepped(rank_);
  }
  co_await driver_.flush();
}

// How many samples this worker computes in the coming step.
std::int64_t VirtualWorker::step_samples() {
  const std::int64_t own = scenario_.batch * scenario_.accumulate;
  if (!strategy_->lockstep()) return own;
  const std::int64_t all = own * cluster_.size();
  const std::int64_t left =
      scenario_.samples > 0 ? scenario_.samples - worker_.progress.samples : all;
  return share_of(strategy_->split(std::min(all, left)), rank_).count;
}

Task<> VirtualWorker::step() {
  const std::int64_t samples = step_samples();
  driver_.expect(samples);
  pieces_ = compute_.by_bucket(strategy_->plan());
  const Duration waiting = time_.waiting(), updating = time_.updating();
  const auto parts = even_shares(samples, scenario_.accumulate);
  const auto passes = std::max<std::size_t>(
      1, static_cast<std::size_t>(
             std::count_if(parts.begin(), parts.end(), [](std::int64_t n) { return n > 0; })));
  for (std::size_t pass = 0; pass < passes && samples > 0; ++pass) {
    const double factor = pace_.next_factor(now()) * static_cast<double>(parts[pass]) /
                          static_cast<double>(scenario_.profile.batch);
    co_await forward(factor, pass == 0);
    co_await driver_.begin();
    // Samples are drawn, and weigh, once a step: the mean over all passes is what counts.
    if (pass == 0) replica_.gradient(samples);
    co_await backward(factor, pass + 1 == passes);
    ++figures_.micro_batches;
  }
  co_await driver_.end(samples);
  figures_.exposed += time_.waiting() - waiting;
  figures_.busy += time_.updating() - updating;
  figures_.samples += samples;
}

// Bucket 0 holds the last layers.
Task<> VirtualWorker::forward(double factor, bool first_pass) {
  const Time begin = now();
  Duration work{};
  for (std::size_t bucket = pieces_.size(); bucket-- > 0;) {
    if (first_pass && strategy_->waits_for_reads()) {
      co_await compute(std::exchange(work, Duration(0)));
      co_await driver_.need(static_cast<int>(bucket));
    }
    work += scaled(pieces_[bucket].forward, factor);
  }
  co_await compute(work);
  time_.span(Lane::forward, "forward", begin, now());
}

Task<> VirtualWorker::backward(double factor, bool last_pass) {
  const Time begin = now();
  Duration work{};
  for (std::size_t bucket = 0; bucket < pieces_.size(); ++bucket) {
    work += scaled(pieces_[bucket].backward, factor);
    if (!last_pass) continue;
    co_await compute(std::exchange(work, Duration(0)));
    driver_.bucket_ready(static_cast<int>(bucket));
  }
  co_await compute(work + scaled(compute_.backward_tail(), factor));
  time_.span(Lane::backward, "backward", begin, now());
}

// A pause stops the processor too: what it took comes on top.
Task<> VirtualWorker::compute(Duration work) {
  if (work.count() <= 0) co_return;
  figures_.busy += work;
  const Time begin = now();
  const Duration paused = cluster_.paused_time(rank_);
  for (;;) {
    const Time end = begin + work + (cluster_.paused_time(rank_) - paused);
    if (now() >= end) break;
    co_await worker_.loop().sleep_until(end);
  }
}

}  // namespace skein::sim
