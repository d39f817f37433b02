#include "strategy/gossip/gossip.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <bit>
#include <nlohmann/json.hpp>

#include "core/field_names.h"
#include "core/statistics.h"
#include "kernels/kernels.h"
#include "skein/error.h"

namespace skein {
namespace {

using namespace std::chrono_literals;

// How often who waits looks around although nobody has called.
constexpr Duration kLookAround = 100ms;

}  // namespace

struct Gossip::Peers {
  Peers(Worker& worker, const GossipPlan& plan, Gossip& host)
      : changed(worker.loop()),
        clock(plan.options.rate / 2, plan.options.schedule, worker.rng(0x61766572616765)),
        model(worker.arena(), plan.constants.eta, plan.constants.alpha_tilde, worker.allocator()),
        survivors(worker.fabric(), worker.channel(kUp), worker.channel(kDown),
                  worker.channel(kRing)),
        exchanges(worker, worker.channel(kModels), model, plan.options.average_momentum, changed,
                  host),
        pairing(worker, worker.channel(kPairing), plan.topology.neighbours(worker.rank()), tally,
                changed, host),
        assembly(worker, worker.channel(kAssembly), survivors, tally, host) {}

  Signal changed;  // something that somebody may wait for
  AveragingClock clock;
  LiveModel model;
  Tally tally;
  Survivors survivors;
  Exchanges exchanges;
  Pairing pairing;
  Assembly assembly;
  std::exception_ptr error;  // that ended a job which nobody waits for
};

Gossip::Gossip(Worker& worker, const StrategyTraits& traits, std::shared_ptr<const GossipPlan> plan)
    : Strategy(worker, traits),
      gossip_(std::move(plan)),
      plan_(worker.arena(), Fusion::whole()),
      peers_(worker.size() > 1 ? std::make_unique<Peers>(worker, *gossip_, *this) : nullptr) {}

Gossip::~Gossip() = default;

// Begins, and begins again after settle() and flush(): from here on others may average with this
// worker. After a flush the parameters are the model, whoever has written to them since.
void Gossip::wake() {
  if (!peers_) return;
  const Time now = worker_.loop().now();
  peers_->clock.step_begins(now);
  if (!std::exchange(settled_, false)) return;
  started_ = true;
  if (worker_.budget > 0) peers_->tally.goal = worker_.budget - worker_.progress.samples + counted_;
  if (std::exchange(flushed_, false))
    peers_->model.start(now);
  else
    peers_->model.go_on(now);
  gathered_ = false;
  for (const int rank : std::exchange(left_, {})) drop(rank);
  peers_->pairing.announce(true);
  peers_->changed.notify_all();
}

Task<> Gossip::begin_step(std::int64_t) {
  if (settled_) wake();
  co_return;
}

Task<> Gossip::end_step(std::int64_t samples) {
  if (peers_ && samples > 0) {
    peers_->clock.step_ends(worker_.meters.compute);
    peers_->model.set_seconds_per_gradient(peers_->clock.seconds_per_gradient());
  }
  if (samples > 0) {
    co_await update();
  } else {
    fill(worker_.arena().gradients(), 0);
    if (peers_) co_await wait_for_news();
  }
  count_samples(samples);
  if (!peers_) co_return;
  peers_->changed.notify_all();
  co_await catch_up();
  if (peers_->model.averaged()) refresh();
  peers_->clock.step_begins(worker_.loop().now());
}

// A worker that has no samples left goes on averaging with the others.
Task<> Gossip::wait_for_news() {
  const Time latest = worker_.loop().now() + kLookAround;
  const std::int64_t known = peers_->tally.known();
  while (peers_->tally.known() == known && !peers_->tally.stop && worker_.loop().now() < latest)
    co_await peers_->changed.wait(latest);
}

void Gossip::refresh() {
  peers_->model.copy_to(worker_.arena().parameters(), worker_.loop().now());
}

Task<> Gossip::update() {
  Arena& arena = worker_.arena();
  UpdateContext context = worker_.next_update();
  const Worker::SquaredNorm norm = [this] {
    return worker_.value_of(squared_norm(worker_.arena().gradients()));
  };
  if (worker_.wants_norm()) co_await worker_.prepare(context, norm);
  if (!context.skip) ++worker_.progress.steps;
  if (!peers_ || context.skip) {
    co_await worker_.update({0, arena.size()}, context);
    worker_.model_updated();
    co_return;
  }
  const auto change = [&](Range range) {
    worker_.optimizer().update(range, peers_->model.x(), arena.gradients(), context);
  };
  const std::function<void()> step = [&] {
    peers_->model.step(worker_.loop().now(), worker_.optimizer().per_tensor(), change);
  };
  co_await worker_.update(arena.size(), step);
  worker_.model_updated();
}

void Gossip::count_samples(std::int64_t samples) {
  Progress& progress = worker_.progress;
  if (!peers_) {
    progress.samples += samples;
    worker_.all_stop = worker_.wants_to_stop;
    return;
  }
  Tally& tally = peers_->tally;
  tally.add(samples);
  tally.stop = tally.stop || worker_.wants_to_stop;
  peers_->assembly.count(samples == 0);
  take_down_samples(tally.known());
}

void Gossip::take_down_samples(std::int64_t known) {
  worker_.progress.samples += known - std::exchange(counted_, known);
  worker_.all_stop = worker_.all_stop || peers_->tally.stop;
}

std::int64_t Gossip::lag() const { return peers_->clock.due(worker_.loop().now()) - begun_; }

// The only time a gradient waits for an averaging.
Task<> Gossip::catch_up() {
  for (;;) {
    rethrow();
    const std::int64_t behind = lag();
    most_lag_ = std::max(most_lag_, behind);
    if (behind <= gossip_->options.max_lag || !peers_->pairing.has_company()) co_return;
    co_await peers_->changed.wait(worker_.loop().now() + kLookAround);
  }
}

// Proposes what is due, one at a time.
Task<> Gossip::background() {
  if (!peers_) co_return;
  auto& [changed, clock, model, tally, survivors, exchanges, pairing, assembly, error] = *peers_;
  pairing.start();
  assembly.start();
  for (;;) {
    if (error) std::rethrow_exception(error);
    const bool engaged = exchanges.engaged();
    if (settled_ || engaged) {
      co_await changed.wait(exchanges.next_suspension());
      continue;
    }
    if (lag() <= 0) {
      co_await changed.wait(std::min(clock.next(), exchanges.next_suspension()));
      continue;
    }
    const bool asked = co_await pairing.propose();
    if (!asked) co_await changed.wait(worker_.loop().now() + pairing.pause(exchanges.mean()));
  }
}

bool Gossip::is_free_for(int peer) const {
  return !settled_ && !peers_->pairing.proposing() && !peers_->exchanges.engaged() &&
         !peers_->exchanges.open_with(peer);
}

bool Gossip::is_stuck_with(int peer) const {
  return peers_->exchanges.open_with(peer) && !peers_->exchanges.engaged();
}

void Gossip::agreed(int peer, bool own_proposal) {
  if (own_proposal) ++begun_;
  peers_->exchanges.begin(peer, own_proposal);
}

// Who leaves when all have come to a flush has ended its run, and may use the world still: it is
// missed only if training goes on.
void Gossip::lost(int peer) {
  if (gathered_)
    left_.push_back(peer);
  else
    drop(peer);
}

// Those around who is lost average with each other in its place.
void Gossip::drop(int peer) {
  peers_->survivors.lose(peer);
  peers_->assembly.lose(peer);
  std::vector<bool> gone(static_cast<std::size_t>(worker_.size()));
  for (const int rank : peers_->survivors.lost()) gone[static_cast<std::size_t>(rank)] = true;
  if (started_ && flushed_) return;  // who leaves at the end is not missed
  for (const int rank : gossip_->neighbours_without(worker_.rank(), gone))
    peers_->pairing.add(rank);
}

void Gossip::failed(int peer) { peers_->pairing.lose(peer); }

// It need not be a neighbour.
void Gossip::absent(int rank) {
  peers_->pairing.lose(rank);
  if (peers_->survivors.lives(rank)) drop(rank);
}

void Gossip::broke(std::exception_ptr error) {
  if (!peers_->error) peers_->error = std::move(error);
  peers_->changed.notify_all();
}

void Gossip::rethrow() const {
  if (peers_->error) std::rethrow_exception(peers_->error);
}

// A late answer may begin an exchange, which the other side applies.
bool Gossip::is_busy(bool with_late_ones) const {
  return peers_->pairing.proposing() || peers_->exchanges.engaged() ||
         (with_late_ones && (peers_->exchanges.open() || peers_->pairing.awaits_answers()));
}

// Others may wait for this worker with all their patience: no more than a part of it may go by
// here.
Task<> Gossip::come_to_rest(bool even_late_ones) {
  settled_ = true;
  auto& [changed, clock, model, tally, survivors, exchanges, pairing, assembly, error] = *peers_;
  assembly.count(true);
  pairing.announce(false);
  const Time latest = worker_.loop().now() + worker_.patience() / 4;
  while (is_busy(even_late_ones)) {
    const Time now = worker_.loop().now();
    if (now >= latest) break;
    co_await changed.wait(std::min(latest, now + kLookAround));
  }
  refresh();
  model.pause(worker_.loop().now());
}

Task<> Gossip::settle() {
  if (peers_ && !flushed_) co_await come_to_rest(false);
}

// An exchange that only one side has applied would stay in the mean for ever. Where nobody has made
// a step since the last flush every bit stays as it is.
Task<> Gossip::flush() {
  if (!peers_) co_return;
  rethrow();
  const bool news = !flushed_;
  if (news) co_await come_to_rest(true);
  const Assembly::Gathering all = co_await peers_->assembly.come(news);
  gathered_ = true;
  rethrow();
  peers_->tally.hear(all.samples, false);
  take_down_samples(all.samples);
  if (!all.news) co_return;
  peers_->exchanges.detach_all();
  double distance = 0;
  co_await peers_->survivors.mean(worker_.arena().parameters(), worker_.deadline(), &distance,
                                  all.whole);
  rethrow();
  if (has_models()) consensus_ = distance;
  for (const int rank : peers_->survivors.lost()) peers_->pairing.lose(rank);
  flushed_ = true;
}

bool Gossip::has_models() const {
  return worker_.arena().parameters().device.kind != Device::absent;
}

// Each worker's own is as good as any other's: the mean is what all can go on from.
Task<> Gossip::average(Span values) { co_await peers_->survivors.mean(values, worker_.deadline()); }

std::vector<std::int64_t> Gossip::own_words() const {
  std::vector<std::int64_t> words;
  if (!peers_) return words;
  words.reserve(10);
  for (const Rng* each : {&peers_->clock.rng(), &peers_->pairing.rng()})
    for (const std::uint64_t word : each->words())
      words.push_back(std::bit_cast<std::int64_t>(word));
  return words;
}

void Gossip::restore_own(const std::vector<std::int64_t>& words) {
  std::array<std::uint64_t, 5> clock{}, pairing{};
  if (!peers_ || words.size() != clock.size() + pairing.size()) return;
  for (std::size_t i = 0; i < clock.size(); ++i) {
    clock[i] = std::bit_cast<std::uint64_t>(words[i]);
    pairing[i] = std::bit_cast<std::uint64_t>(words[clock.size() + i]);
  }
  peers_->clock.go_on_with(Rng::standing_at(clock));
  peers_->pairing.go_on_with(Rng::standing_at(pairing));
}

bool Gossip::read_model(Span into) const {
  if (!peers_ || settled_) return false;
  peers_->model.read(into, worker_.loop().now());
  return true;
}

// Who leaves after the last flush is not missing.
std::vector<int> Gossip::missing() const {
  if (!started_ || !flushed_) return peers_->survivors.lost();
  std::vector<int> ranks;
  for (int rank = 0; rank < worker_.size(); ++rank)
    if (!peers_->survivors.contributors()[static_cast<std::size_t>(rank)]) ranks.push_back(rank);
  return ranks;
}

nlohmann::json Gossip::figures() const {
  if (!peers_) return nlohmann::json::object();
  const Exchanges::Counts& done = peers_->exchanges.counts();
  const auto gradients = static_cast<double>(std::max<std::int64_t>(1, peers_->clock.gradients()));
  const std::vector<int> dead = missing();
  std::vector<bool> lost(static_cast<std::size_t>(worker_.size()));
  for (const int rank : dead) lost[static_cast<std::size_t>(rank)] = true;
  const std::vector<double> latencies = peers_->exchanges.latencies_ms();
  return {
      {"averagings_per_gradient", static_cast<double>(done.initiated + done.accepted) / gradients},
      {"initiated", done.initiated},
      {"accepted", done.accepted},
      {"refused", peers_->pairing.counts().refused},
      {"unanswered", peers_->pairing.counts().unanswered},
      {"suspended", done.suspended},
      {"most_lag", most_lag_},
      {"exchange_p50_ms", quantile(latencies, 0.5)},
      {"exchange_p95_ms", quantile(latencies, 0.95)},
      {"chi1", gossip_->constants.chi1},
      {"chi2", gossip_->constants.chi2},
      {"eta", gossip_->constants.eta},
      {"alpha_tilde", gossip_->constants.alpha_tilde},
      {field::kConsensusDistance, consensus_ ? nlohmann::json(*consensus_) : nlohmann::json()},
      {"dead", dead},
      {"connected", dead.empty() || gossip_->connected_without(lost)}};
}

nlohmann::json Gossip::step_figures() const {
  if (!peers_) return nlohmann::json::object();
  const Exchanges::Counts& done = peers_->exchanges.counts();
  nlohmann::json figures{{"averagings", done.initiated + done.accepted},
                         {"lag", std::max<std::int64_t>(0, lag())}};
  if (consensus_) figures[field::kConsensusDistance] = *consensus_;
  return figures;
}

std::string Gossip::summary() const {
  if (!peers_) return "";
  const nlohmann::json all = figures();
  std::string text =
      fmt::format("{:.2f} averagings per gradient of rank {}, {:.1f} ms each; graph {}",
                  all["averagings_per_gradient"].get<double>(), worker_.rank(),
                  all["exchange_p50_ms"].get<double>(), gossip_->topology.name());
  if (consensus_) text += fmt::format("; mean squared distance of the models {:.3g}", *consensus_);
  const std::vector<int> dead = all["dead"];
  if (!dead.empty()) text += fmt::format("; lost rank {}", fmt::join(dead, ", "));
  if (!all["connected"].get<bool>())
    text += ", without whom the graph would have fallen apart: those around average in their place";
  return text;
}

}  // namespace skein
