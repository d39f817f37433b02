// Bytes to and from one peer: a socket that never blocks, with TLS over it or, once both sides have
// shown that they belong to the run, without.
//
// Calls its owner back from Poller::poll(), when something may be read or written. Not thread-safe.
#pragma once

#include <sys/uio.h>

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "core/file_descriptor.h"
#include "fabric/tcp/poller.h"
#include "fabric/tcp/tls.h"

namespace skein::tcp {

class Stream final : private Poller::Watcher {
 public:
  Stream(Poller& poller, FileDescriptor socket, const Tls& tls, Side side);
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;
  ~Stream() override;

  std::function<void()> on_ready;

  // Goes on with the handshake: true when it has ended, and the peer has shown that it belongs to
  // the run. Throws NotAuthenticated when it does not, IoError when the connection ends.
  bool handshake();

  // Both sides go on without TLS from here. Requires that all written before has been flushed, and
  // that the peer sends nothing in clear before it has read what was.
  void go_on_in_clear();

  // Takes what is there, up to `bytes`; 0 when nothing is. Throws ConnectionEnded; at first also
  // NotAuthenticated: with certificates, who connects has ended the handshake before the peer has
  // looked at its certificate.
  std::size_t read(void* into, std::size_t bytes);

  // Takes in what it has room for and says how much that is; it is on its way or flush() sends the
  // rest. The memory is the caller's again. Throws ConnectionEnded.
  std::size_t write(std::span<const iovec> parts);

  // Sends what has been taken in and says whether nothing is left. Throws ConnectionEnded.
  bool flush();
  bool flushed() const { return out_.empty(); }

  // Calls on_ready at the next turn, though nothing may have arrived.
  void again() { poller_.again(id_); }

  // What was sent and nobody has acknowledged for so long ends the connection.
  void give_up_after(Duration time);

  int socket() const { return socket_.get(); }

 private:
  void ready() override;
  std::size_t write_encrypted(std::span<const iovec> parts);
  std::size_t write_clear(std::span<const iovec> parts);
  void encrypt(const char* data, std::size_t bytes);

  Poller& poller_;
  const Tls& tls_;
  FileDescriptor socket_;
  Intake in_;
  bool heard_ = false;     // something from the peer, after the handshake
  std::vector<char> out_;  // encrypted, to be sent
  std::size_t sent_ = 0;   // of it
  std::uint64_t under_this_key_ = 0;
  Session session_;  // none: in clear
  Poller::Id id_ = 0;
};

}  // namespace skein::tcp
