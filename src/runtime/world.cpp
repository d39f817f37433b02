#include "skein/world.h"

#include <fmt/format.h>

#include <algorithm>
#include <exception>

#include "fabric/alone.h"
#include "fabric/local/local_fabric.h"
#include "kernels/kernels.h"
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
  if (!survivors_) return courier_->wait(fabric_->all_reduce(kOwnChannel, values, deadline()));
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
  courier_->wait(fabric_->all_reduce_small(kOwnChannel, values, deadline()));
}

void World::Impl::mean(Span values) {
  sum(values);
  const auto count = std::count(present_.begin(), present_.end(), true);
  if (count > 1) scale(values, 1 / static_cast<float>(count));
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

World World::join(const JoinOptions& options) {
  return World(std::make_shared<Impl>(options, detect(process_environment).value_or(Placement{})));
}

World::World(std::shared_ptr<Impl> impl) : impl_(std::move(impl)) {}
World::World(World&&) noexcept = default;
World& World::operator=(World&&) noexcept = default;
World::~World() = default;

int World::rank() const { return impl_->fabric().rank(); }
int World::size() const { return impl_->fabric().size(); }
std::string World::fabric() const { return impl_->fabric().name(); }

void World::barrier() { sum({}); }

std::vector<double> World::sum(const std::vector<double>& values) {
  // A double travels as three floats, which together hold all its bits; each is summed by itself.
  const auto memory = allocate_on_heap(3 * values.size() + 1);
  const Span parts = memory->span();
  for (std::size_t i = 0; i < values.size(); ++i) {
    double rest = values[i];
    for (std::size_t k = 0; k < 3; ++k) {
      parts[3 * i + k] = static_cast<float>(rest);
      rest -= static_cast<double>(parts[3 * i + k]);
    }
  }
  impl_->sum_small(parts);
  std::vector<double> sums(values.size());
  for (std::size_t i = 0; i < values.size(); ++i)
    for (std::size_t k = 3; k-- > 0;) sums[i] += static_cast<double>(parts[3 * i + k]);
  return sums;
}

void World::fail(const std::string& reason) { impl_->fail(reason, -1); }

}  // namespace skein
