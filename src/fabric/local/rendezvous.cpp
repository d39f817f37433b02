#include "fabric/local/rendezvous.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <optional>
#include <thread>

#include "core/check.h"
#include "core/descriptor_limit.h"
#include "fabric/local/segment.h"
#include "skein/error.h"

namespace skein::shm {
namespace {

using namespace std::chrono_literals;

constexpr std::uint32_t kMagic = 0x534b4e33;  // "SKN3": changes with the layout of Header

// Well below the 253 that one message may carry.
constexpr std::size_t kMostFdsOfAMessage = 128;

// Which descriptors come with a worker, and in this order: its memory, its process, its bell. The
// latter two may be missing.
struct Brought {
  std::uint32_t process, bell;

  std::size_t count() const { return 1 + std::size_t{process != 0} + std::size_t{bell != 0}; }
};

struct Hello {
  std::uint32_t magic, size, rank, pid;
  Brought brought;
};

// What rank 0 tells everybody of each worker; its descriptors follow in order of rank.
struct Introduction {
  std::int32_t pid;
  Brought brought;
};

Brought brought_by(const Peer& peer) { return {peer.process.valid(), peer.bell.valid()}; }

std::vector<int> descriptors_of(const Peer& peer) {
  std::vector<int> fds{peer.segment.get()};
  if (peer.process.valid()) fds.push_back(peer.process.get());
  if (peer.bell.valid()) fds.push_back(peer.bell.get());
  return fds;
}

// Takes a worker's descriptors from `next` on.
Peer peer_of(int pid, const Brought& brought, std::vector<FileDescriptor>::iterator& next) {
  Peer peer;
  peer.pid = pid;
  peer.segment = std::move(*next++);
  if (brought.process != 0) peer.process = std::move(*next++);
  if (brought.bell != 0) peer.bell = std::move(*next++);
  return peer;
}

[[noreturn]] void fail(const std::string& what) {
  throw IoError(fmt::format("meeting of the workers: {}: {}", what, system_error_text(errno)));
}

struct Address {
  sockaddr_un value{};
  socklen_t length = 0;
};

// Names for the meeting of one run, in the order in which they are tried. The launcher's variables
// may let others guess them, and who has a name keeps it: a stranger would have to sit on all.
constexpr int kNames = 8;

// 128 bits that stand for a text which is too long.
std::string digest(const std::string& text) {
  std::string out;
  for (const std::uint64_t basis : {0xcbf29ce484222325U, 0x84222325cbf29ce4U}) {
    std::uint64_t hash = basis;  // FNV-1a
    for (const char letter : text)
      hash = (hash ^ static_cast<unsigned char>(letter)) * 0x100000001b3U;
    out += fmt::format("{:016x}", hash);
  }
  return out;
}

Address address_of(const std::string& run_id, int number) {
  constexpr std::size_t kLongest = 72;
  const std::string id =
      run_id.size() <= kLongest ? run_id : run_id.substr(0, 32) + "-" + digest(run_id);
  std::string name = fmt::format("skein-{}-{}", ::geteuid(), id);
  if (number > 0) name += fmt::format("-{}", number);
  Address address;
  address.value.sun_family = AF_UNIX;
  SKEIN_CHECK(name.size() < sizeof(address.value.sun_path), "a name of {} bytes", name.size());
  std::memcpy(address.value.sun_path + 1, name.data(), name.size());  // a leading 0: no file
  address.length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  return address;
}

FileDescriptor new_socket() {
  FileDescriptor socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!socket.valid()) fail("socket");
  return socket;
}

bool connects(int socket, const Address& address) {
  return ::connect(socket, reinterpret_cast<const sockaddr*>(&address.value), address.length) == 0;
}

int remaining_ms(Deadline deadline) {
  const auto left = deadline - SteadyClock().now();
  return static_cast<int>(std::clamp<std::int64_t>(left / 1ms, 0, 1 << 30));
}

// Whether `fd` can be read, or (`events`) written, before the deadline.
bool ready(int fd, Deadline deadline, short events = POLLIN) {
  for (;;) {
    pollfd waiting{fd, events, 0};
    const int count = ::poll(&waiting, 1, remaining_ms(deadline));
    if (count < 0 && errno != EINTR) fail("poll");
    if (count > 0) return true;
    if (SteadyClock().now() >= deadline) return false;
  }
}

[[noreturn]] void too_late(int peer) {
  throw IoError(
      peer < 0 ? "meeting of the workers: a worker stopped in the middle of joining the run"
               : fmt::format("meeting of the workers: rank {} did not go on by the deadline", peer),
      peer);
}

// Sockets never block: what cannot be sent at once waits for room, until the deadline. The system
// also limits how many descriptors a user has under way: those who receive them make room.
void send_message(int socket, const void* data, std::size_t bytes, const std::vector<int>& fds,
                  int peer, Deadline deadline) {
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
  for (;;) {
    const ssize_t sent = ::sendmsg(socket, &message, MSG_NOSIGNAL);
    if (sent == static_cast<ssize_t>(bytes)) return;
    const bool full = sent < 0 && errno == EAGAIN;
    if (sent >= 0 || (!full && errno != ETOOMANYREFS && errno != EINTR)) fail("sendmsg");
    if (SteadyClock().now() >= deadline || (full && !ready(socket, deadline, POLLOUT)))
      too_late(peer);
    if (!full) std::this_thread::sleep_for(5ms);
  }
}

// Reads exactly `bytes`, in as many pieces as they come, and adds the descriptors that came along.
void receive_message(int socket, void* data, std::size_t bytes, std::vector<FileDescriptor>& fds,
                     int peer, Deadline deadline) {
  for (std::size_t at = 0; at < bytes;) {
    if (!ready(socket, deadline)) too_late(peer);
    iovec part{static_cast<char*>(data) + at, bytes - at};
    std::vector<char> control(CMSG_SPACE(kMostFdsOfAMessage * sizeof(int)));
    msghdr message{};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    message.msg_control = control.data();
    message.msg_controllen = control.size();
    const ssize_t got = ::recvmsg(socket, &message, MSG_CMSG_CLOEXEC);
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) continue;
    if (got < 0) fail("recvmsg");
    for (cmsghdr* header = CMSG_FIRSTHDR(&message); header;
         header = CMSG_NXTHDR(&message, header)) {
      if (header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_RIGHTS) continue;
      std::vector<int> numbers((header->cmsg_len - CMSG_LEN(0)) / sizeof(int));
      std::memcpy(numbers.data(), CMSG_DATA(header), numbers.size() * sizeof(int));
      for (int number : numbers) fds.emplace_back(number);
    }
    if (got == 0)
      throw IoError(
          "meeting of the workers: the other side closed the connection (it failed or was refused)",
          peer);
    at += static_cast<std::size_t>(got);
  }
}

// The user of the process at the other end, as the kernel knows it.
uid_t user_of(int socket) {
  ucred credentials{};
  socklen_t length = sizeof(credentials);
  if (::getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &credentials, &length) != 0)
    fail("SO_PEERCRED");
  return credentials.uid;
}

bool is_own(int socket) { return user_of(socket) == ::geteuid(); }

// Whoever only wanted to know who listens here has said nothing.
bool has_gone(int socket) {
  char byte;
  return ::recv(socket, &byte, 1, MSG_PEEK | MSG_DONTWAIT) == 0;
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
  if (fds.size() != hello.brought.count())
    throw IoError("meeting of the workers: a worker brought other descriptors than it says");
  auto next = fds.begin();
  return peer_of(static_cast<int>(hello.pid), hello.brought, next);
}

// A descriptor of this process, which means the same in every PID namespace. Invalid where the
// system has none.
FileDescriptor own_process() {
  return FileDescriptor(static_cast<int>(::syscall(SYS_pidfd_open, ::getpid(), 0)));
}

std::vector<int> missing_ranks(const std::vector<Peer>& peers) {
  std::vector<int> missing;
  for (std::size_t r = 1; r < peers.size(); ++r)
    if (!peers[r].segment.valid()) missing.push_back(static_cast<int>(r));
  return missing;
}

void introduce(const std::vector<Peer>& peers, int socket, int rank, Deadline deadline) {
  std::vector<Introduction> all;
  std::vector<int> fds;
  for (const Peer& peer : peers) {
    all.push_back({peer.pid, brought_by(peer)});
    for (const int fd : descriptors_of(peer)) fds.push_back(fd);
  }
  send_message(socket, all.data(), all.size() * sizeof(Introduction), {}, rank, deadline);
  for (std::size_t at = 0; at < fds.size(); at += kMostFdsOfAMessage) {
    const auto begin = fds.begin() + static_cast<std::ptrdiff_t>(at);
    const auto count = std::min(kMostFdsOfAMessage, fds.size() - at);
    const char mark = 'F';
    send_message(socket, &mark, 1, {begin, begin + static_cast<std::ptrdiff_t>(count)}, rank,
                 deadline);
  }
}

std::vector<Peer> be_introduced(int socket, int size, Deadline deadline) {
  std::vector<Introduction> all(static_cast<std::size_t>(size));
  std::vector<FileDescriptor> fds;
  receive_message(socket, all.data(), all.size() * sizeof(Introduction), fds, 0, deadline);
  std::size_t expected = 0;
  for (const Introduction& each : all) expected += each.brought.count();
  for (std::size_t at = 0; at < expected; at += kMostFdsOfAMessage) {
    char mark = 0;
    receive_message(socket, &mark, 1, fds, 0, deadline);
  }
  if (fds.size() != expected)
    throw IoError("meeting of the workers: rank 0 sent too few descriptors", 0);
  std::vector<Peer> peers;
  peers.reserve(all.size());
  auto next = fds.begin();
  for (const Introduction& each : all) peers.push_back(peer_of(each.pid, each.brought, next));
  return peers;
}

// Throws unless a process of another user has `address`: then the next name is as good.
void check_taken_by_stranger(const Address& address) {
  const FileDescriptor socket = new_socket();
  if (connects(socket.get(), address) && is_own(socket.get()))
    throw IoError(
        "meeting of the workers: another worker says it is rank 0 of this run, or another run with "
        "this id is starting");
}

FileDescriptor listen_for(const std::string& run_id, int size) {
  for (int number = 0; number < kNames; ++number) {
    FileDescriptor listener = new_socket();
    const Address address = address_of(run_id, number);
    if (::bind(listener.get(), reinterpret_cast<const sockaddr*>(&address.value), address.length) ==
        0) {
      if (::listen(listener.get(), size) != 0) fail("listen");
      return listener;
    }
    if (errno != EADDRINUSE) fail("bind");
    check_taken_by_stranger(address);
  }
  throw IoError(fmt::format(
      "meeting of the workers: processes of other users have taken all names of run '{}'; give it "
      "another id (under torchrun: --rdzv-id, or another --master-port)",
      run_id));
}

std::vector<Peer> host(const std::string& run_id, int size, Peer own, Deadline deadline) {
  const FileDescriptor listener = listen_for(run_id, size);
  std::vector<Peer> peers(static_cast<std::size_t>(size));
  std::vector<FileDescriptor> sockets(static_cast<std::size_t>(size));
  peers[0] = std::move(own);
  std::vector<FileDescriptor> strangers;  // who have connected and said nothing yet
  for (int met = 1; met < size;) {
    std::vector<pollfd> waiting{{listener.get(), POLLIN, 0}};
    for (const FileDescriptor& each : strangers) waiting.push_back({each.get(), POLLIN, 0});
    if (::poll(waiting.data(), waiting.size(), remaining_ms(deadline)) < 0 && errno != EINTR)
      fail("poll");
    if (SteadyClock().now() >= deadline) {
      const std::vector<int> missing = missing_ranks(peers);
      throw IoError(fmt::format("rank {} did not join the run in time", fmt::join(missing, ", ")),
                    missing.front());
    }
    for (std::size_t i = waiting.size() - 1; i > 0; --i) {
      if (waiting[i].revents == 0) continue;
      FileDescriptor socket = std::move(strangers[i - 1]);
      strangers.erase(strangers.begin() + static_cast<std::ptrdiff_t>(i) - 1);
      if (has_gone(socket.get())) continue;
      Hello hello{};
      std::vector<FileDescriptor> fds;
      receive_message(socket.get(), &hello, sizeof(hello), fds, -1, deadline);
      Peer peer = check_hello(hello, std::move(fds), size, peers);
      peers[hello.rank] = std::move(peer);
      sockets[hello.rank] = std::move(socket);
      ++met;
    }
    if (waiting.front().revents == 0) continue;
    FileDescriptor socket(
        ::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!socket.valid()) {
      if (errno == EAGAIN || errno == EINTR || errno == ECONNABORTED) continue;
      fail("accept");
    }
    if (!is_own(socket.get())) continue;
    strangers.push_back(std::move(socket));
  }
  for (std::size_t r = 1; r < sockets.size(); ++r)
    introduce(peers, sockets[r].get(), static_cast<int>(r), deadline);
  return peers;
}

// Under which of its names rank 0 listens is found by trying all.
FileDescriptor find_host(const std::string& run_id, Deadline deadline) {
  for (;;) {
    std::optional<uid_t> stranger;
    for (int number = 0; number < kNames; ++number) {
      FileDescriptor socket = new_socket();
      if (connects(socket.get(), address_of(run_id, number))) {
        if (is_own(socket.get())) return socket;
        stranger = user_of(socket.get());
      } else if (errno != ECONNREFUSED && errno != EAGAIN && errno != EINTR) {
        fail("connect");
      }
    }
    if (SteadyClock().now() >= deadline)
      throw IoError(stranger ? fmt::format("rank 0 did not open the run in time; a process of user "
                                           "{} listens under a name of this run",
                                           *stranger)
                             : "rank 0 did not open the run in time",
                    0);
    std::this_thread::sleep_for(5ms);
  }
}

std::vector<Peer> visit(const std::string& run_id, int rank, int size, const Peer& own,
                        Deadline deadline) {
  const FileDescriptor socket = find_host(run_id, deadline);
  const Hello hello{kMagic, static_cast<std::uint32_t>(size), static_cast<std::uint32_t>(rank),
                    static_cast<std::uint32_t>(own.pid), brought_by(own)};
  send_message(socket.get(), &hello, sizeof(hello), descriptors_of(own), 0, deadline);
  if (!ready(socket.get(), deadline)) throw IoError("the run did not become complete in time", 0);
  return be_introduced(socket.get(), size, deadline);
}

}  // namespace

std::vector<Peer> meet(const std::string& run_id, int rank, int size, int segment_fd,
                       Deadline deadline, int bell_fd) {
  Peer own{FileDescriptor(::dup(segment_fd)), own_process(),
           FileDescriptor(bell_fd < 0 ? -1 : ::dup(bell_fd)), ::getpid()};
  return rank == 0 ? host(run_id, size, std::move(own), deadline)
                   : visit(run_id, rank, size, own, deadline);
}

}  // namespace skein::shm
