#include "fabric/local/rendezvous.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <thread>

#include "fabric/local/segment.h"
#include "skein/error.h"

namespace skein::local {
namespace {

using namespace std::chrono_literals;

constexpr std::uint32_t kMagic = 0x534b4e31;  // "SKN1": changes with the layout of Header

struct Hello {
  std::uint32_t magic, size, rank, pid;
};

[[noreturn]] void fail(const std::string& what) {
  throw IoError(fmt::format("meeting of the workers: {}: {}", what, std::strerror(errno)));
}

struct Address {
  sockaddr_un value{};
  socklen_t length = 0;
};

Address address_of(const std::string& run_id) {
  Address address;
  address.value.sun_family = AF_UNIX;
  const std::string name = fmt::format("skein-{}-{}", ::getuid(), run_id);
  if (name.size() + 1 > sizeof(address.value.sun_path))
    throw ConfigError(fmt::format("run id '{}' is too long: at most 90 characters", run_id));
  std::memcpy(address.value.sun_path + 1, name.data(), name.size());  // a leading 0: no file
  address.length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  return address;
}

int remaining_ms(Deadline deadline) {
  const auto left = deadline - SteadyClock().now();
  return static_cast<int>(std::clamp<std::int64_t>(left / 1ms, 0, 1 << 30));
}

bool readable(int fd, Deadline deadline) {
  pollfd waiting{fd, POLLIN, 0};
  const int count = ::poll(&waiting, 1, remaining_ms(deadline));
  if (count < 0 && errno != EINTR) fail("poll");
  return count > 0;
}

void send_message(int socket, const void* data, std::size_t bytes, const std::vector<int>& fds) {
  iovec part{const_cast<void*>(data), bytes};
  std::vector<char> control(fds.empty() ? 0 : CMSG_SPACE(fds.size() * sizeof(int)));
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  if (!fds.empty()) {
    message.msg_control = control.data();
    message.msg_controllen = control.size();
    cmsghdr* header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(fds.size() * sizeof(int));
    std::memcpy(CMSG_DATA(header), fds.data(), fds.size() * sizeof(int));
  }
  if (::sendmsg(socket, &message, MSG_NOSIGNAL) != static_cast<ssize_t>(bytes)) fail("sendmsg");
}

// Reads exactly `bytes` (they were sent as one message) and the descriptors that came along.
std::vector<FileDescriptor> receive_message(int socket, void* data, std::size_t bytes) {
  iovec part{data, bytes};
  std::vector<char> control(CMSG_SPACE(kMostRanks * sizeof(int)));
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control.data();
  message.msg_controllen = control.size();
  const ssize_t got = ::recvmsg(socket, &message, MSG_CMSG_CLOEXEC | MSG_WAITALL);
  if (got < 0) fail("recvmsg");
  std::vector<FileDescriptor> fds;
  for (cmsghdr* header = CMSG_FIRSTHDR(&message); header; header = CMSG_NXTHDR(&message, header)) {
    if (header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_RIGHTS) continue;
    std::vector<int> numbers((header->cmsg_len - CMSG_LEN(0)) / sizeof(int));
    std::memcpy(numbers.data(), CMSG_DATA(header), numbers.size() * sizeof(int));
    for (int number : numbers) fds.emplace_back(number);
  }
  if (got != static_cast<ssize_t>(bytes))
    throw IoError(
        "meeting of the workers: the other side closed the connection (it failed or was refused)");
  return fds;
}

void check_user(int socket) {
  ucred credentials{};
  socklen_t length = sizeof(credentials);
  if (::getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &credentials, &length) != 0)
    fail("SO_PEERCRED");
  if (credentials.uid != ::getuid())
    throw IoError(
        fmt::format("meeting of the workers: a process of user {} tried to join", credentials.uid));
}

Peer check_hello(const Hello& hello, std::vector<FileDescriptor> fds, int size,
                 const std::vector<Peer>& known) {
  if (hello.magic != kMagic)
    throw IoError("meeting of the workers: a worker of another version of Skein tried to join");
  if (hello.size != static_cast<std::uint32_t>(size) || hello.rank >= hello.size)
    throw ConfigError(fmt::format("rank {} was started for {} workers, rank 0 for {}", hello.rank,
                                  hello.size, size));
  if (known[hello.rank].segment.valid())
    throw ConfigError(fmt::format("two workers say they are rank {}", hello.rank));
  if (fds.size() != 1) throw IoError("meeting of the workers: a worker brought no shared memory");
  return {std::move(fds.front()), static_cast<int>(hello.pid)};
}

std::vector<Peer> host(const Address& address, int size, int segment_fd, Deadline deadline) {
  FileDescriptor listener(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!listener.valid()) fail("socket");
  if (::bind(listener.get(), reinterpret_cast<const sockaddr*>(&address.value), address.length) !=
      0)
    fail("bind (is another run with this id alive?)");
  if (::listen(listener.get(), size) != 0) fail("listen");
  std::vector<Peer> peers(static_cast<std::size_t>(size));
  std::vector<FileDescriptor> sockets(static_cast<std::size_t>(size));
  peers[0] = {FileDescriptor(::dup(segment_fd)), ::getpid()};
  for (int met = 1; met < size;) {
    if (!readable(listener.get(), deadline)) {
      if (SteadyClock().now() < deadline) continue;
      std::vector<int> missing;
      for (int r = 1; r < size; ++r)
        if (!peers[static_cast<std::size_t>(r)].segment.valid()) missing.push_back(r);
      throw IoError(fmt::format("rank {} did not join the run in time", fmt::join(missing, ", ")),
                    missing.front());
    }
    FileDescriptor socket(::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
    if (!socket.valid()) fail("accept");
    check_user(socket.get());
    if (!readable(socket.get(), deadline)) continue;
    Hello hello{};
    auto fds = receive_message(socket.get(), &hello, sizeof(hello));
    Peer peer = check_hello(hello, std::move(fds), size, peers);
    peers[hello.rank] = std::move(peer);
    sockets[hello.rank] = std::move(socket);
    ++met;
  }
  std::vector<int> fds, pids;
  for (const Peer& peer : peers) {
    fds.push_back(peer.segment.get());
    pids.push_back(peer.pid);
  }
  for (std::size_t r = 1; r < sockets.size(); ++r)
    send_message(sockets[r].get(), pids.data(), pids.size() * sizeof(int), fds);
  return peers;
}

std::vector<Peer> visit(const Address& address, int rank, int size, int segment_fd,
                        Deadline deadline) {
  FileDescriptor socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!socket.valid()) fail("socket");
  while (::connect(socket.get(), reinterpret_cast<const sockaddr*>(&address.value),
                   address.length) != 0) {
    if (errno != ECONNREFUSED && errno != ENOENT && errno != EAGAIN && errno != EINTR)
      fail("connect");
    if (SteadyClock().now() >= deadline) throw IoError("rank 0 did not open the run in time", 0);
    std::this_thread::sleep_for(5ms);
  }
  check_user(socket.get());
  const Hello hello{kMagic, static_cast<std::uint32_t>(size), static_cast<std::uint32_t>(rank),
                    static_cast<std::uint32_t>(::getpid())};
  send_message(socket.get(), &hello, sizeof(hello), {segment_fd});
  while (!readable(socket.get(), deadline))
    if (SteadyClock().now() >= deadline)
      throw IoError("the run did not become complete in time", 0);
  std::vector<int> pids(static_cast<std::size_t>(size));
  auto fds = receive_message(socket.get(), pids.data(), pids.size() * sizeof(int));
  if (fds.size() != pids.size())
    throw IoError("meeting of the workers: rank 0 sent too few descriptors", 0);
  std::vector<Peer> peers;
  for (std::size_t r = 0; r < pids.size(); ++r) peers.push_back({std::move(fds[r]), pids[r]});
  return peers;
}

}  // namespace

std::vector<Peer> meet(const std::string& run_id, int rank, int size, int segment_fd,
                       Deadline deadline) {
  const Address address = address_of(run_id);
  return rank == 0 ? host(address, size, segment_fd, deadline)
                   : visit(address, rank, size, segment_fd, deadline);
}

}  // namespace skein::local
