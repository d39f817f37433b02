#include "proxy/fault_proxy.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "fabric/tcp/address.h"

namespace skein {
namespace {

using namespace std::chrono_literals;

constexpr std::size_t kMostHeld = 256 * 1024;
constexpr std::size_t kMostRecorded = 64 * 1024;

// So that what the proxy does not pass on soon is felt by who sends it.
void take_in_little(int socket) {
  const int bytes = 128 * 1024;
  ::setsockopt(socket, SOL_SOCKET, SO_RCVBUF, &bytes, sizeof(bytes));
}

bool nothing_now() { return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR; }

}  // namespace

FaultProxy::FaultProxy(const std::string& target)
    : target_(target),
      listener_(tcp::listen_at(tcp::numeric_address("127.0.0.1", 0))),
      bell_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  take_in_little(listener_.get());  // as those that it accepts
  address_ = tcp::local_address(listener_.get()).text();
  thread_ = std::thread([this] { run(); });
}

FaultProxy::~FaultProxy() {
  over_ = true;
  on_thread([] {});
  thread_.join();
}

void FaultProxy::on_thread(const std::function<void()>& action) {
  const std::lock_guard lock(mutex_);
  action();
  const std::uint64_t one = 1;
  (void)!::write(bell_.get(), &one, sizeof(one));
}

void FaultProxy::delay(Duration by) {
  on_thread([&] { delay_ = by; });
}
void FaultProxy::trickle(Duration every) {
  on_thread([&] { trickle_ = every; });
}
void FaultProxy::limit(double bytes_per_second, Of of) {
  on_thread([&] {
    limit_ = bytes_per_second;
    limited_ = of;
  });
}
void FaultProxy::stall(bool stalled) {
  on_thread([&] { stalled_ = stalled; });
}
void FaultProxy::refuse(bool refused) {
  on_thread([&] { refused_ = refused; });
}
void FaultProxy::cut_every(std::uint64_t bytes) {
  on_thread([&] { cut_every_ = bytes; });
}
void FaultProxy::corrupt_after(Way way, std::uint64_t bytes) {
  on_thread([&] { corrupt_in_[way] = bytes; });
}

void FaultProxy::cut() {
  on_thread([&] {
    for (Pair& pair : pairs_) reset(pair);
  });
}

void FaultProxy::cut_one() {
  on_thread([&] {
    const auto whole =
        std::find_if(pairs_.begin(), pairs_.end(), [](const Pair& pair) { return !pair.broken; });
    if (whole != pairs_.end()) reset(*whole);
  });
}

int FaultProxy::carrying() {
  constexpr std::uint64_t kMoreThanAHandshake = 30'000;
  int count = 0;
  on_thread([&] {
    count = static_cast<int>(std::count_if(pairs_.begin(), pairs_.end(), [](const Pair& pair) {
      return !pair.broken &&
             pair.pipes[to_target].passed + pair.pipes[from_target].passed > kMoreThanAHandshake;
    }));
  });
  return count;
}

void FaultProxy::half_close(Way way) {
  on_thread([&] {
    for (Pair& pair : pairs_) {
      ::shutdown(pair.pipes[way].to, SHUT_WR);
      pair.pipes[way].ended = pair.pipes[way].closed = true;
      pair.pipes[way].pieces.clear();
    }
  });
}

std::vector<char> FaultProxy::recorded(Way way) {
  const std::lock_guard lock(mutex_);
  return recorded_[way];
}

// Closed at once, with a reset: nothing of what is on its way arrives.
void FaultProxy::reset(Pair& pair) {
  const linger now{1, 0};
  for (FileDescriptor* socket : {&pair.client, &pair.server}) {
    ::setsockopt(socket->get(), SOL_SOCKET, SO_LINGER, &now, sizeof(now));
    *socket = FileDescriptor();
  }
  pair.broken = true;
}

void FaultProxy::accept() {
  FileDescriptor client(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  if (!client.valid()) return;
  Pair& pair = pairs_.emplace_back();
  ++accepted_;
  pair.client = std::move(client);
  tcp::never_delay(pair.client.get());
  const tcp::Address address = tcp::resolve(tcp::parse_host_port(target_)).front();
  pair.server = FileDescriptor(::socket(address.storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
  tcp::never_delay(pair.server.get());
  take_in_little(pair.server.get());
  // It is on this host: whether it is there is known at once.
  if (refused_ || ::connect(pair.server.get(), address.raw(), address.length) != 0)
    return reset(pair);
  ++reached_;
  if (!recording_) recording_ = &pair;
  pair.pipes[to_target].from = pair.pipes[from_target].to = pair.client.get();
  pair.pipes[to_target].to = pair.pipes[from_target].from = pair.server.get();
}

void FaultProxy::pass(Pair& pair, Way way, char* bytes, std::size_t count) {
  if (corrupt_in_[way] < count) bytes[corrupt_in_[way]] ^= 0x10;
  corrupt_in_[way] = corrupt_in_[way] < count || corrupt_in_[way] == ~std::uint64_t{0}
                         ? ~std::uint64_t{0}
                         : corrupt_in_[way] - count;
  if (&pair == recording_ && recorded_[way].size() < kMostRecorded)
    recorded_[way].insert(recorded_[way].end(), bytes, bytes + count);
  pair.pipes[way].pieces.push_back({SteadyClock().now() + delay_, {bytes, bytes + count}, 0});
  pair.pipes[way].held += count;
}

void FaultProxy::read(Pair& pair, Way way) {
  Pipe& pipe = pair.pipes[way];
  std::array<char, 64 * 1024> bytes;
  const ssize_t got = ::recv(pipe.from, bytes.data(), bytes.size(), MSG_DONTWAIT);
  if (got < 0 && nothing_now()) return;
  if (got < 0) return reset(pair);
  if (got == 0)
    pipe.ended = true;
  else
    pass(pair, way, bytes.data(), static_cast<std::size_t>(got));
}

std::size_t FaultProxy::allowed(Pipe& pipe, Way way, Time now) {
  constexpr double kMostSaved = 64 * 1024;
  Allowance& allowance = limited_ == Of::each ? pipe.allowance : allowances_[way];
  allowance.bytes = std::min(
      kMostSaved, allowance.bytes + limit_ * seconds(now - std::exchange(allowance.since, now)));
  return static_cast<std::size_t>(allowance.bytes);
}

void FaultProxy::write(Pair& pair, Way way) {
  Pipe& pipe = pair.pipes[way];
  const Time now = SteadyClock().now();
  while (!pipe.pieces.empty() && pipe.pieces.front().due <= now) {
    Piece& piece = pipe.pieces.front();
    std::size_t most = piece.bytes.size() - piece.at;
    if (cut_every_ > 0) most = std::min<std::uint64_t>(most, cut_every_ - pipe.passed % cut_every_);
    if (trickle_ > Duration(0)) {
      if (now < next_byte_[way]) return;
      next_byte_[way] = now + trickle_;
      most = 1;
    }
    if (limit_ > 0) most = std::min(most, allowed(pipe, way, now));
    if (most == 0) return;
    const ssize_t sent =
        ::send(pipe.to, piece.bytes.data() + piece.at, most, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent < 0 && nothing_now()) return;
    if (sent < 0) return reset(pair);
    (limited_ == Of::each ? pipe.allowance : allowances_[way]).bytes -= static_cast<double>(sent);
    piece.at += static_cast<std::size_t>(sent);
    pipe.held -= static_cast<std::size_t>(sent);
    pipe.passed += static_cast<std::uint64_t>(sent);
    passed_[way] += static_cast<std::uint64_t>(sent);
    if (piece.at == piece.bytes.size()) pipe.pieces.pop_front();
    if (cut_every_ > 0 && pipe.passed % cut_every_ == 0) return reset(pair);
  }
  if (pipe.ended && !pipe.closed && pipe.pieces.empty()) {
    pipe.closed = true;
    ::shutdown(pipe.to, SHUT_WR);
  }
}

void FaultProxy::run() {
  std::unique_lock lock(mutex_);
  while (!over_) {
    std::vector<pollfd> wanted{{bell_.get(), POLLIN, 0}, {listener_.get(), POLLIN, 0}};
    bool soon = false;  // something waits for its time
    for (Pair& pair : pairs_) {
      for (Pipe& pipe : pair.pipes) {
        const bool due = !pipe.pieces.empty() && pipe.pieces.front().due <= SteadyClock().now();
        const bool slowed = trickle_ > Duration(0) || limit_ > 0;
        soon = soon || (!pipe.pieces.empty() && (!due || slowed));
        if (stalled_) continue;
        if (!pipe.ended && pipe.held < kMostHeld) wanted.push_back({pipe.from, POLLIN, 0});
        if (due && !slowed) wanted.push_back({pipe.to, POLLOUT, 0});
      }
    }
    lock.unlock();
    ::poll(wanted.data(), wanted.size(), soon ? 1 : 1000);
    lock.lock();
    std::uint64_t rings = 0;
    (void)!::read(bell_.get(), &rings, sizeof(rings));
    if ((wanted[1].revents & POLLIN) != 0) accept();
    if (stalled_) continue;
    for (Pair& pair : pairs_) {
      for (const Way way : {to_target, from_target}) {
        if (!pair.broken && !pair.pipes[way].ended && pair.pipes[way].held < kMostHeld)
          read(pair, way);
        if (!pair.broken) write(pair, way);
      }
    }
    pairs_.remove_if([](const Pair& pair) {
      return pair.broken || (pair.pipes[to_target].closed && pair.pipes[from_target].closed);
    });
  }
}

}  // namespace skein
