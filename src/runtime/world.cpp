#include "skein/world.h"

#include <fmt/format.h>

#include <algorithm>
#include <exception>
#include <numeric>

#include "cuda/cuda.h"
#include "kernels/kernels.h"
#include "kernels/threads.h"
#include "runtime/fabrics.h"
#include "runtime/world_impl.h"

namespace skein {
namespace {

void use_threads(const JoinOptions& options, const Placement& placement) {
  if (options.threads < 0)
    throw ConfigError(
        fmt::format("{} threads: expected 0, for the host's cores, or more", options.threads));
  set_kernel_threads(options.threads > 0 ? options.threads : share_of_cores(placement.local_size));
}

// What other workers are told is a line among theirs.
std::string as_one_line(const std::string& text) {
  constexpr std::size_t kMost = 400;
  std::string line = text.substr(0, kMost);
  while (line.size() < text.size() && !line.empty() && (line.back() & 0x80) != 0)
    line.pop_back();  // not a part of a character
  for (char& each : line)
    if (static_cast<unsigned char>(each) < ' ' || each == 0x7f) each = ' ';
  return line.size() < text.size() ? line + "…" : line;
}

std::string text_of(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const std::exception& caught) {
    return caught.what();
  } catch (...) {
    return "an exception without a text";
  }
}

// A child of fork() leaves everything as it is: its parent is still in the run.
template <class T>
void destroy_at_home(T* object) {
  if (object->here()) delete object;
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
  courier_->on_interrupt = [this](const std::exception_ptr& why) { fail(text_of(why), -1); };
  std::vector<int> ranks(static_cast<std::size_t>(placement.size));
  std::iota(ranks.begin(), ranks.end(), 0);
  calls_ =
      std::make_unique<Calls>(*fabric_, *courier_, options.patience, std::move(ranks), "world");
}

// A program that catches its errors itself tells nobody of them: that it unwinds is all that can be
// known here.
World::Impl::~Impl() {
  if (failed_.empty() && std::uncaught_exceptions() > exceptions_)
    courier_->with_loop([this] {
      fabric_->fail("an exception ended it, which its program can tell by World::run()");
    });
  board_.leave();
  courier_->with_loop([this] { calls_.reset(); });
  courier_.reset();
  loop_.abandon_jobs();
}

void World::Impl::fail(const std::string& reason, int lost_peer) {
  failed_ = reason.empty() ? "without a reason" : reason;
  board_.fail(reason, lost_peer);
  courier_->with_loop([&] { fabric_->fail(as_one_line(reason)); });
}

void World::Impl::fail(const std::exception& error) {
  const auto* lost = dynamic_cast<const IoError*>(&error);
  fail(error.what(), lost ? lost->peer() : -1);
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

void World::Impl::mean(Span values) {
  const char* const call = "a mean over all workers";
  if (Survivors* const survivors = calls_->survivors())
    return calls_->wait_for_survivors(call, survivors->mean(values, deadline()));
  calls_->wait(call, fabric_->all_reduce(kOwnChannel, values, limit()));
  const auto count = static_cast<float>(fabric_->size());
  if (count > 1) courier_->with_loop([&] { scale(values, 1 / count); });
}

int World::Impl::leader() const {
  check_company();
  return static_cast<int>(std::ranges::find(present(), true) - present().begin());
}

void World::Impl::once(const std::string& call, const std::function<void()>& body) {
  for (int by = -1; by < 0 || !present()[static_cast<std::size_t>(by)];) {
    by = leader();
    std::exception_ptr failed;
    if (by == fabric_->rank()) try {
        body();
      } catch (const std::exception&) {
        failed = std::current_exception();
      }
    agree_on_success(call, failed);
  }
}

void World::Impl::agree_on_success(const std::string& call, const std::exception_ptr& own) {
  std::string text;
  if (own) try {
      std::rethrow_exception(own);
    } catch (const ConfigError& error) {
      text = fmt::format("C{}", error.what());
    } catch (const std::exception& error) {
      text = fmt::format("E{}", error.what());
    }
  const std::byte mine{static_cast<unsigned char>(own ? 1 : 0)};
  bool failed = false;
  for (const auto& row : calls_->meet(call, {&mine, 1}))
    failed = failed || (!row.empty() && row.front() != std::byte{});
  const auto texts = failed ? calls_->gather_text(call, text) : std::vector<std::string>();
  if (own) std::rethrow_exception(own);
  for (std::size_t rank = 0; rank < texts.size(); ++rank) {
    if (texts[rank].empty()) continue;
    const std::string why = fmt::format("rank {}: {}", rank, texts[rank].substr(1));
    if (texts[rank].front() == 'C') throw ConfigError(why);
    throw Error(why);
  }
}

World World::join(const JoinOptions& options) {
  const Placement placement = detect(process_environment).value_or(Placement{});
  use_threads(options, placement);
  return World(std::shared_ptr<Impl>(new Impl(options, placement), destroy_at_home<Impl>));
}

int World::run(const std::function<void(World&)>& body, const JoinOptions& options) {
  std::string who;
  try {
    World world = join(options);
    if (world.size() > 1) who = fmt::format("rank {}: ", world.rank());
    try {
      body(world);
    } catch (const std::exception& error) {
      if (world.impl_) world.fail(error);
      throw;
    }
    return 0;
  } catch (const ConfigError& error) {
    fmt::print(stderr, "{}{}\n", who, error.what());
    return 2;
  } catch (const std::exception& error) {
    fmt::print(stderr, "{}{}\n", who, error.what());
    return 1;
  }
}

World::World(std::shared_ptr<Impl> impl)
    : Workers(std::shared_ptr<Calls>(impl, &impl->calls())), impl_(std::move(impl)) {}
World::World(World&&) noexcept = default;
World& World::operator=(World&&) noexcept = default;
World::~World() = default;

std::string World::fabric() const { return impl_->fabric().name(); }
int World::leader() const { return impl_->leader(); }
void World::once(const std::function<void()>& body, const std::string& name) {
  impl_->once(name.empty() ? "world.once()" : name, body);
}
void World::fail(const std::string& reason) { impl_->fail(reason, -1); }
void World::fail(const std::exception& error) { impl_->fail(error); }
void World::on_wait(std::function<void()> ask) { impl_->courier().while_waiting = std::move(ask); }

}  // namespace skein
