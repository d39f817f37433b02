#include "fabric/tcp/talk.h"

#include <fmt/format.h>
#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <cstring>

#include "fabric/tcp/errors.h"

namespace skein::tcp {
namespace {

constexpr std::size_t kMostOfAFarewell = std::size_t{64} * 1024;  // who sends more gets no answer

void check_in_time(bool came) {
  if (!came) throw IoError("the other side did not answer in time");
}

int pending_error(int socket) {
  int error = 0;
  socklen_t length = sizeof(error);
  ::getsockopt(socket, SOL_SOCKET, SO_ERROR, &error, &length);
  return error;
}

bool connected(int socket) {
  sockaddr_storage address{};
  socklen_t length = sizeof(address);
  return ::getpeername(socket, reinterpret_cast<sockaddr*>(&address), &length) == 0;
}

}  // namespace

Task<FileDescriptor> connect_to(Loop& loop, Poller& poller, Address address, Deadline deadline) {
  FileDescriptor socket = new_socket(address);
  SocketSignal ready(loop, poller, socket.get());
  const bool begun = ::connect(socket.get(), address.raw(), address.length) == 0;
  if (!begun && errno == ECONNREFUSED) throw NobodyListens(std::strerror(errno));
  if (!begun && errno != EINPROGRESS) throw IoError(std::strerror(errno));
  while (!connected(socket.get())) {
    const int error = pending_error(socket.get());
    if (error == ECONNREFUSED) throw NobodyListens(std::strerror(error));
    if (error != 0) throw IoError(std::strerror(error));
    const bool came = co_await ready.changed.wait(deadline);
    check_in_time(came);
  }
  co_return socket;
}

Talk::Talk(Loop& loop, std::unique_ptr<Stream> stream)
    : changed_(loop), stream_(std::move(stream)) {
  stream_->on_ready = [this] { changed_.notify_all(); };
}

Task<> Talk::handshake(Deadline deadline) {
  while (!stream_->handshake()) {
    const bool came = co_await changed_.wait(deadline);
    check_in_time(came);
  }
}

Task<> Talk::say(std::span<const std::byte> bytes, Deadline deadline) {
  for (std::size_t at = 0; at < bytes.size() || !stream_->flush();) {
    const iovec part{const_cast<std::byte*>(bytes.data()) + at, bytes.size() - at};
    const std::size_t taken = at < bytes.size() ? stream_->write({&part, 1}) : 0;
    at += taken;
    if (taken > 0) continue;
    const bool came = co_await changed_.wait(deadline);
    check_in_time(came);
  }
}

Task<> Talk::answer(Answer::Kind kind, std::span<const std::byte> body, Deadline deadline) {
  const AnswerBytes header = encode(Answer{kind, static_cast<std::uint32_t>(body.size())});
  std::vector<std::byte> both(header.begin(), header.end());
  both.insert(both.end(), body.begin(), body.end());
  co_await say(both, deadline);
}

Task<> Talk::hear(std::span<std::byte> into, Deadline deadline) {
  for (std::size_t at = 0; at < into.size();) {
    const std::size_t got = stream_->read(into.data() + at, into.size() - at);
    at += got;
    if (got > 0) continue;
    const bool came = co_await changed_.wait(deadline);
    check_in_time(came);
  }
}

Task<Hello> Talk::hear_hello(Deadline deadline) {
  HelloBytes bytes;
  co_await hear(bytes, deadline);
  co_return decode_hello(bytes);
}

Task<std::vector<std::byte>> Talk::hear_answer(Answer::Kind kind, Deadline deadline) {
  AnswerBytes header;
  co_await hear(header, deadline);
  const Answer answer = decode_answer(header);
  std::vector<std::byte> body(answer.length);
  co_await hear(body, deadline);
  if (answer.kind == Answer::Kind::refusal) throw Refused(decode_text(body));
  if (answer.kind != kind) throw IoError("the other side sent an unexpected answer");
  co_return body;
}

Task<> Talk::see_off(Deadline deadline) {
  ::shutdown(socket(), SHUT_WR);
  std::array<char, 4096> unread;
  for (std::size_t all = 0; all < kMostOfAFarewell;) {
    const ssize_t got = ::recv(socket(), unread.data(), unread.size(), 0);
    if (got == 0 || (got < 0 && errno != EAGAIN)) co_return;
    if (got > 0) {
      all += static_cast<std::size_t>(got);
      continue;
    }
    const bool came = co_await changed_.wait(deadline);
    if (!came) co_return;
  }
}

bool Talk::waits() {
  try {
    std::byte unexpected;
    return stream_->read(&unexpected, 1) == 0;
  } catch (const IoError&) {
    return false;
  }
}

std::unique_ptr<Stream> Talk::release(bool encrypt) {
  stream_->on_ready = nullptr;
  if (!encrypt) stream_->go_on_in_clear();
  return std::move(stream_);
}

}  // namespace skein::tcp
