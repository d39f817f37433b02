#include "page/reception.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <utility>

#include "skein/error.h"

namespace skein {

Reception::Reception(WhenWhole when_whole, std::chrono::milliseconds patience)
    : when_whole_(std::move(when_whole)),
      patience_(patience),
      wake_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  if (!wake_.valid()) throw Error(fmt::format("cannot make an eventfd: {}", std::strerror(errno)));
  // Signals are for the threads that the program knows.
  sigset_t all, before;
  ::sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, &before);
  thread_ = std::thread([this] { work(); });
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

Reception::~Reception() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  ::eventfd_write(wake_.get(), 1);
  thread_.join();
}

void Reception::admit(FileDescriptor client) {
  ::fcntl(client.get(), F_SETFD, FD_CLOEXEC);  // workers that are started do not inherit it
  {
    const std::lock_guard lock(mutex_);
    new_.push_back(std::move(client));
  }
  ::eventfd_write(wake_.get(), 1);
}

void Reception::work() {
  std::vector<pollfd> watched;
  while (take_in_new()) {
    watched.assign(1, {wake_.get(), POLLIN, 0});
    for (const Client& client : clients_) watched.push_back({client.socket.get(), POLLIN, 0});
    ::poll(watched.data(), watched.size(), static_cast<int>(next_deadline().count()));
    const Time now = SteadyClock().now();
    std::size_t at = 0;
    for (auto client = clients_.begin(); client != clients_.end();) {
      const bool says_something = watched[++at].revents != 0;
      const Heard heard = says_something ? listen_to(*client) : Heard::part;
      if (heard == Heard::whole)
        when_whole_(std::move(client->socket), std::move(client->head));
      else if (heard == Heard::part && now < client->until) {
        ++client;
        continue;
      }
      client = clients_.erase(client);
    }
  }
}

bool Reception::take_in_new() {
  std::uint64_t ignored = 0;
  ::eventfd_read(wake_.get(), &ignored);
  const std::lock_guard lock(mutex_);
  for (FileDescriptor& client : new_)
    clients_.push_back({std::move(client), SteadyClock().now() + patience_, {}});
  new_.clear();
  while (clients_.size() > kMostClients) clients_.pop_front();
  return !stopping_;
}

// All have the same patience, so the first is the first to be hung up on.
std::chrono::milliseconds Reception::next_deadline() const {
  if (clients_.empty()) return std::chrono::milliseconds(-1);
  const Duration left = clients_.front().until - SteadyClock().now();
  return std::max(std::chrono::ceil<std::chrono::milliseconds>(left), {});
}

Reception::Heard Reception::listen_to(Client& client) {
  std::array<char, 4096> piece;
  const ssize_t got = ::recv(client.socket.get(), piece.data(), piece.size(), MSG_DONTWAIT);
  if (got < 0 && (errno == EAGAIN || errno == EINTR)) return Heard::part;
  if (got <= 0) return Heard::too_much_or_end;
  constexpr std::string_view kEnd = "\r\n\r\n";
  const std::size_t from = client.head.size() - std::min(client.head.size(), kEnd.size() - 1);
  client.head.append(piece.data(), static_cast<std::size_t>(got));
  if (client.head.find(kEnd, from) != std::string::npos) return Heard::whole;
  return client.head.size() < kMostBytes ? Heard::part : Heard::too_much_or_end;
}

}  // namespace skein
