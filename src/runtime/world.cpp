#include "skein/world.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <exception>

#include "cuda/cuda.h"
#include "fabric/rows.h"
#include "kernels/kernels.h"
#include "kernels/threads.h"
#include "runtime/fabrics.h"
#include "runtime/world_impl.h"

namespace skein {
namespace {

// Bytes of a table in which workers tell each other something.
constexpr std::size_t kMostGathered = std::size_t{1} << 19;

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
  if (!failed_ && std::uncaught_exceptions() > exceptions_)
    courier_->with_loop([this] { fabric_->fail("an exception ended it"); });
  board_.leave();
  courier_.reset();
  loop_.abandon_jobs();
}

void World::Impl::fail(const std::string& reason, int lost_peer) {
  failed_ = true;
  board_.fail(reason, lost_peer);
  courier_->with_loop([&] { fabric_->fail(reason); });
}

void World::Impl::use_device(Device device) {
  if (device.kind != Device::gpu) return;
  if (queue_ && queue_->device() == device) return;
  if (queue_)
    throw ConfigError(fmt::format(
        "a module on cuda:{}: this world works on cuda:{} already; expected one device in a "
        "process",
        device.index, queue_->device().index));
  auto queue = make_cuda_queue(device.index);
  courier_->with_loop([&] {
    queue_ = std::move(queue);
    loop_.use(queue_.get());
  });
}

void World::Impl::do_without_device() const {
  if (fabric_->traits().devices_only)
    throw ConfigError(fmt::format(
        "the {} fabric joins GPUs, and this worker computes on the CPU: expected --device cuda (a "
        "module on a GPU), or another fabric",
        fabric_->name()));
}

void World::Impl::finish(const std::function<void()>& work) {
  constexpr Duration kSpin = std::chrono::milliseconds(1);
  Mark done;
  courier_->with_loop([&] {
    work();
    done = record(queue_.get());
  });
  // The loop must go on: it lets go of a peer that died, which the queue may wait for.
  for (const Time until = clock_.now() + kSpin; !reached(done) && clock_.now() < until;) {
  }
  if (!reached(done)) courier_->wait(until_reached(loop_, done));
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

void World::Impl::combine(Span record, const Merge& merge) {
  if (!survivors_) return courier_->wait(fabric_->combine(kOwnChannel, record, merge, limit()));
  courier_->wait(ended(survivors_->combine(record, merge, deadline())));
  present_ = survivors_->contributors();
  check_company();
}

void World::Impl::meet() {
  std::byte nothing{};
  combine(message_of({&nothing, 1}), [](auto, auto) {});
}

void World::Impl::mean(Span values) {
  sum(values);
  const auto count = std::count(present_.begin(), present_.end(), true);
  if (count > 1) courier_->with_loop([&] { scale(values, 1 / static_cast<float>(count)); });
}

// Piece by piece: a table of what many workers have to say would not be small.
std::vector<std::vector<std::byte>> World::Impl::gather(std::span<const std::byte> bytes) {
  const auto ranks = static_cast<std::size_t>(fabric_->size());
  const std::size_t most = std::max<std::size_t>(1, kMostGathered / ranks);
  std::vector<std::vector<std::byte>> rows(ranks);
  for (std::size_t at = 0; at == 0 || at < bytes.size(); at += most) {
    const auto piece = bytes.subspan(at, std::min(most, bytes.size() - at));
    Rows table(fabric_->size(), piece.size());
    table.put(fabric_->rank(), piece);
    combine(table.record(), table.merge());
    for (std::size_t rank = 0; rank < ranks; ++rank)
      if (const auto row = table.row(static_cast<int>(rank)))
        rows[rank].insert(rows[rank].end(), row->begin(), row->end());
  }
  // One that was lost on the way has nothing whole.
  for (std::size_t rank = 0; rank < ranks; ++rank)
    if (!present_[rank]) rows[rank].clear();
  return rows;
}

std::vector<std::string> World::Impl::gather_text(const std::string& text) {
  const std::uint64_t own = text.size();
  std::uint64_t longest = 0;
  std::vector<std::uint64_t> lengths;
  for (const auto& row : gather(std::as_bytes(std::span(&own, 1)))) {
    std::uint64_t length = 0;
    if (!row.empty()) std::memcpy(&length, row.data(), sizeof(length));
    lengths.push_back(length);
    longest = std::max(longest, length);
  }
  std::string padded = text;
  padded.resize(longest);
  std::vector<std::string> texts;
  for (const auto& row : gather(std::as_bytes(std::span(padded)))) {
    const std::size_t length = std::min<std::size_t>(row.size(), lengths[texts.size()]);
    texts.emplace_back(reinterpret_cast<const char*>(row.data()), length);
  }
  return texts;
}

int World::Impl::leader() const {
  check_company();
  return static_cast<int>(std::find(present_.begin(), present_.end(), true) - present_.begin());
}

void World::Impl::write_once(const std::function<void()>& write) {
  for (int writer = -1; writer < 0 || !present_[static_cast<std::size_t>(writer)];) {
    writer = leader();
    if (writer == fabric_->rank()) write();
    meet();
  }
}

namespace {

// Every worker's numbers, by rank.
template <typename Number>
std::vector<std::vector<Number>> gather_numbers(World::Impl& world,
                                                const std::vector<Number>& own) {
  std::vector<std::vector<Number>> rows;
  for (const auto& bytes : world.gather(std::as_bytes(std::span(own)))) {
    rows.emplace_back(bytes.size() / sizeof(Number));
    if (!bytes.empty()) std::memcpy(rows.back().data(), bytes.data(), bytes.size());
  }
  return rows;
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

void World::barrier() { impl_->meet(); }

std::vector<std::vector<double>> World::gather(const std::vector<double>& values) {
  return gather_numbers(*impl_, values);
}

std::vector<double> World::sum(const std::vector<double>& values) {
  std::vector<double> sums(values.size());
  for (const auto& row : gather_numbers(*impl_, values))
    for (std::size_t i = 0; i < row.size(); ++i) sums[i] += row[i];
  return sums;
}

std::vector<std::int64_t> World::sum_integers(const std::vector<std::int64_t>& values) {
  std::vector<std::uint64_t> sums(values.size());  // unsigned: too large a sum wraps
  for (const auto& row : gather_numbers(*impl_, values))
    for (std::size_t i = 0; i < row.size(); ++i) sums[i] += static_cast<std::uint64_t>(row[i]);
  return {sums.begin(), sums.end()};
}

void World::fail(const std::string& reason) { impl_->fail(reason, -1); }

}  // namespace skein
