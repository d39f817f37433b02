// A conversation with one peer before the run begins: what is said in turns, with a deadline each.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "core/loop.h"
#include "fabric/tcp/address.h"
#include "fabric/tcp/hello.h"
#include "fabric/tcp/stream.h"

namespace skein::tcp {

// Tells a signal when its socket is ready; the socket stays whose it is.
class SocketSignal final : private Poller::Watcher {
 public:
  SocketSignal(Loop& loop, Poller& poller, int socket)
      : changed(loop), poller_(poller), socket_(socket), id_(poller.add(socket, *this)) {}
  SocketSignal(const SocketSignal&) = delete;
  SocketSignal& operator=(const SocketSignal&) = delete;
  ~SocketSignal() override { poller_.remove(id_, socket_); }
  Signal changed;

 private:
  void ready() override { changed.notify_all(); }
  Poller& poller_;
  int socket_;
  Poller::Id id_;
};

// A socket that is connected to `address`. Throws IoError when that is refused or takes too long.
Task<FileDescriptor> connect_to(Loop& loop, Poller& poller, Address address, Deadline deadline);

// All throw IoError when the connection ends or the deadline passes.
class Talk {
 public:
  Talk(Loop& loop, std::unique_ptr<Stream> stream);
  Talk(const Talk&) = delete;
  Talk& operator=(const Talk&) = delete;

  Task<> handshake(Deadline deadline);
  Task<> say(std::span<const std::byte> bytes, Deadline deadline);
  Task<> answer(Answer::Kind kind, std::span<const std::byte> body, Deadline deadline);
  Task<Hello> hear_hello(Deadline deadline);

  // The body of an answer of this kind. Throws Refused for a refusal.
  Task<std::vector<std::byte>> hear_answer(Answer::Kind kind, Deadline deadline);

  // Says nothing more, and reads what the peer has sent until it goes, too. Closed at once, the
  // connection would be reset, and what was said last be lost.
  Task<> see_off(Deadline deadline);

  // Whether the peer is still there; it has nothing to say at present.
  bool waits();

  int socket() const { return stream_->socket(); }

  // The connection, for the run; the talk is over.
  std::unique_ptr<Stream> release(bool encrypt);

 private:
  Task<> hear(std::span<std::byte> into, Deadline deadline);

  Signal changed_;
  std::unique_ptr<Stream> stream_;
};

}  // namespace skein::tcp
