#include "fabric/tcp/poller.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include "skein/error.h"

namespace skein::tcp {
namespace {

constexpr Poller::Id kBell = 0;

void watch(int epoll, int fd, Poller::Id id, std::uint32_t events) {
  epoll_event event{};
  event.events = events;
  event.data.u64 = id;
  if (::epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event) != 0)
    throw Error(fmt::format("cannot watch a socket: {}", std::strerror(errno)));
}

}  // namespace

Poller::Poller()
    : epoll_(::epoll_create1(EPOLL_CLOEXEC)), bell_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  if (!epoll_.valid() || !bell_.valid())
    throw Error(fmt::format("cannot watch sockets: {}", std::strerror(errno)));
  watch(epoll_.get(), bell_.get(), kBell, EPOLLIN);
}

Poller::Id Poller::add(int socket, Watcher& watcher) {
  const Id id = next_++;
  watch(epoll_.get(), socket, id, EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET);
  watchers_[id] = &watcher;
  return id;
}

bool Poller::also(int descriptor) {
  watch(epoll_.get(), descriptor, next_++, EPOLLIN | EPOLLET);
  return true;
}

void Poller::remove(Id id, int socket) {
  if (watchers_.erase(id) > 0) ::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, socket, nullptr);
}

void Poller::again(Id id) {
  again_.push_back(id);
  hurry_.store(true, std::memory_order_release);
}

void Poller::tell(Id id) {
  const auto found = watchers_.find(id);  // one told before may have removed it
  if (found != watchers_.end()) found->second->ready();
}

void Poller::tick_every(Duration period, std::function<void()> tick) {
  tick_ = std::move(tick);
  period_ = period;
  next_tick_ = SteadyClock().now() + period;
}

void Poller::tick_if_due() {
  if (!tick_) return;
  const Time now = SteadyClock().now();
  if (now < next_tick_.load(std::memory_order_relaxed)) return;
  next_tick_.store(now + period_, std::memory_order_relaxed);
  tick_();
}

std::uint32_t Poller::poll() {
  std::vector<Id> repeated;
  if (hurry_.exchange(false, std::memory_order_acq_rel)) repeated.swap(again_);
  std::array<epoll_event, 64> events;
  const int count = ::epoll_wait(epoll_.get(), events.data(), static_cast<int>(events.size()), 0);
  if (count > 0) arrivals_.fetch_add(1, std::memory_order_acq_rel);
  const std::uint32_t ticket = arrivals_.load(std::memory_order_acquire);
  for (const Id id : repeated) tell(id);
  for (int i = 0; i < count; ++i) {
    const Id id = events[static_cast<std::size_t>(i)].data.u64;
    if (id == kBell) {
      std::uint64_t rings = 0;
      (void)!::read(bell_.get(), &rings, sizeof(rings));
    } else {
      tell(id);
    }
  }
  tick_if_due();
  return ticket;
}

// The kernel says that the epoll descriptor can be read while events wait in it; they stay there
// for poll(), since another thread than this one may drive the loop.
void Poller::wait(std::uint32_t ticket, Time until) {
  if (hurry_.load(std::memory_order_acquire) || arrivals_.load(std::memory_order_acquire) != ticket)
    return;
  until = std::min(until, next_tick_.load(std::memory_order_relaxed));
  timespec left{};
  if (until != kNever) {
    const auto ns = std::max<std::int64_t>((until - SteadyClock().now()).count(), 0);
    left = {ns / 1'000'000'000, ns % 1'000'000'000};
  }
  pollfd epoll{epoll_.get(), POLLIN, 0};
  ::ppoll(&epoll, 1, until == kNever ? nullptr : &left, nullptr);
}

void Poller::wake() {
  arrivals_.fetch_add(1, std::memory_order_acq_rel);
  const std::uint64_t one = 1;
  (void)!::write(bell_.get(), &one, sizeof(one));
}

}  // namespace skein::tcp
