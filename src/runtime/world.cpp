#include "skein/world.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <exception>

#include "fabric/alone.h"
#include "fabric/local/local_fabric.h"
#include "kernels/kernels.h"
#include "kernels/threads.h"
#include "plan/exact.h"
#include "runtime/world_impl.h"

namespace skein {
namespace {

std::unique_ptr<Fabric> make_fabric(Loop& loop, const JoinOptions& options,
                                    const Placement& placement) {
  if (options.fabric != "local")
    throw ConfigError(fmt::format("no fabric '{}' in this build: expected local", options.fabric));
  if (placement.size == 1) return std::make_unique<AloneFabric>(loop);
  if (placement.local_size != placement.size)
    throw ConfigError(fmt::format(
        "the local fabric joins workers of one host, but only {} of the {} workers that {} "
        "started are here",
        placement.local_size, placement.size, placement.launcher));
  return std::make_unique<LocalFabric>(
      loop, LocalOptions{placement.run_id,
                         placement.rank,
                         placement.size,
                         options.patience,
                         {options.emulate_bytes_per_second, options.emulate_latency}});
}

void use_threads(const JoinOptions& options, const Placement& placement) {
  if (options.threads < 0)
    throw ConfigError(
        fmt::format("{} threads: expected 0, for the host's cores, or more", options.threads));
  set_kernel_threads(options.threads > 0 ? options.threads : share_of_cores(placement.local_size));
}

}  // namespace

World::Impl::Impl(const JoinOptions& options, const Placement& placement)
    : options_(options),
      board_(Board::join(process_environment, placement.rank, placement.size)),
      loop_(clock_),
      fabric_(make_fabric(loop_, options, placement)) {
  fabric_->observe(this);
  courier_ = std::make_unique<Courier>(loop_, fabric_->events());
  courier_->on_loss = [this](int peer) { board_.lose(peer); };
  present_.assign(static_cast<std::size_t>(placement.size), true);
}

// A program that catches its errors tells nobody of them: that it unwinds is all that can be known.
World::Impl::~Impl() {
  if (!failed_ && std::uncaught_exceptions() > exceptions_) fabric_->fail("an exception ended it");
  board_.leave();
  courier_.reset();
  loop_.abandon_jobs();
}

void World::Impl::fail(const std::string& reason, int lost_peer) {
  failed_ = true;
  board_.fail(reason, lost_peer);
  fabric_->fail(reason);
}

void World::Impl::tolerate_losses() {
  if (fabric_->size() > 1)
    survivors_ = std::make_unique<Survivors>(*fabric_, kUpChannel, kDownChannel);
}

namespace {

// A task whose result nobody needs: who took part is asked for afterwards.
Task<> ended(Task<int> task) { co_await task; }

}  // namespace

void World::Impl::sum(Span values) {
  if (!survivors_) return courier_->wait(fabric_->all_reduce(kOwnChannel, values, limit()));
  courier_->wait(ended(survivors_->sum(values, deadline())));
  present_ = survivors_->contributors();
  check_company();
}

// A worker that was away too long must not take itself for the last one: others may go on, or have
// ended well and gone.
void World::Impl::check_company() const {
  if (survivors_ && survivors_->left_behind())
    throw IoError("the others have gone on without this worker, which was away too long");
}

void World::Impl::sum_small(Span values) {
  if (survivors_) return sum(values);
  courier_->wait(fabric_->all_reduce_small(kOwnChannel, values, limit()));
}

void World::Impl::mean(Span values) {
  sum(values);
  const auto count = std::count(present_.begin(), present_.end(), true);
  if (count > 1) scale(values, 1 / static_cast<float>(count));
}

// Everyone fills a row of its own in a table of zeros, so a sum of tables loses no bit, in whatever
// order a fabric adds.
std::vector<std::vector<std::uint64_t>> World::Impl::gather(
    const std::vector<std::uint64_t>& words) {
  const auto ranks = static_cast<std::size_t>(fabric_->size());
  const std::size_t row = kExactParts * words.size();
  const auto memory = allocate_on_heap(row * ranks + 1);  // a barrier has no words
  const Span table = memory->span();
  const auto place = [&](std::size_t rank, std::size_t i) {
    return table.at({row * rank + kExactParts * i, kExactParts});
  };
  for (std::size_t i = 0; i < words.size(); ++i)
    put_bits(place(static_cast<std::size_t>(fabric_->rank()), i), words[i]);
  sum_small(table);
  std::vector<std::vector<std::uint64_t>> rows(ranks);
  for (std::size_t rank = 0; rank < ranks; ++rank)
    for (std::size_t i = 0; present_[rank] && i < words.size(); ++i)
      rows[rank].push_back(get_bits(place(rank, i)));
  return rows;
}

int World::Impl::leader() const {
  check_company();
  return static_cast<int>(std::find(present_.begin(), present_.end(), true) - present_.begin());
}

void World::Impl::write_once(const std::function<void()>& write) {
  for (int writer = -1; writer < 0 || !present_[static_cast<std::size_t>(writer)];) {
    writer = leader();
    if (writer == fabric_->rank()) write();
    sum({});
  }
}

namespace {

template <typename Number>
std::vector<std::uint64_t> words_of(const std::vector<Number>& numbers) {
  std::vector<std::uint64_t> words;
  words.reserve(numbers.size());
  for (const Number number : numbers) words.push_back(std::bit_cast<std::uint64_t>(number));
  return words;
}

}  // namespace

World World::join(const JoinOptions& options) {
  const Placement placement = detect(process_environment).value_or(Placement{});
  use_threads(options, placement);
  return World(std::make_shared<Impl>(options, placement));
}

World::World(std::shared_ptr<Impl> impl) : impl_(std::move(impl)) {}
World::World(World&&) noexcept = default;
World& World::operator=(World&&) noexcept = default;
World::~World() = default;

int World::rank() const { return impl_->fabric().rank(); }
int World::size() const { return impl_->fabric().size(); }
std::string World::fabric() const { return impl_->fabric().name(); }

void World::barrier() { sum({}); }

std::vector<std::vector<double>> World::gather(const std::vector<double>& values) {
  std::vector<std::vector<double>> rows;
  for (const auto& words : impl_->gather(words_of(values))) {
    rows.emplace_back();
    for (const std::uint64_t word : words) rows.back().push_back(std::bit_cast<double>(word));
  }
  return rows;
}

std::vector<double> World::sum(const std::vector<double>& values) {
  std::vector<double> sums(values.size());
  for (const auto& words : impl_->gather(words_of(values)))
    for (std::size_t i = 0; i < words.size(); ++i) sums[i] += std::bit_cast<double>(words[i]);
  return sums;
}

std::vector<std::int64_t> World::sum_integers(const std::vector<std::int64_t>& values) {
  std::vector<std::uint64_t> sums(values.size());  // unsigned: too large a sum wraps
  for (const auto& words : impl_->gather(words_of(values)))
    for (std::size_t i = 0; i < words.size(); ++i) sums[i] += words[i];
  return {sums.begin(), sums.end()};
}

void World::fail(const std::string& reason) { impl_->fail(reason, -1); }

}  // namespace skein
