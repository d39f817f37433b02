// The fabric of workers on any hosts: TCP between each two of them, TLS over it.
//
// docs/hosts.md says how workers meet, what is sent and how it is protected.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "fabric/fabric.h"

namespace skein {

inline constexpr int kMostTcpStreams = 16;  // to a peer

struct TcpOptions {
  int rank = 0;
  int size = 1;
  std::string rendezvous;  // HOST:PORT where rank 0 listens and the others look for it

  // What all workers of the run know, and nobody else. Or, in its place, files in PEM: this
  // worker's certificate, its key, and the authority whose certificates are trusted.
  std::string secret_file;
  std::string tls_cert_file, tls_key_file, tls_ca_file;

  // Tells runs apart that have one secret: their workers turn each other away. Empty: nothing does.
  std::string run;

  bool encrypt = true;  // false: both sides still show that they belong to the run
  Duration join_timeout = std::chrono::seconds(60);

  // A peer of which nothing has come for so long may be lost; longer where its heartbeats come
  // irregularly (docs/hosts.md).
  Duration least_silence = std::chrono::seconds(10);

  // To each peer: how many there are at first, and at most. More are made when they make the whole
  // faster.
  int streams = 1;
  int most_streams = 4;

  // Is told how the meeting goes when it takes long.
  std::function<void(const std::string&)> say = [](const std::string&) {};
};

// Why this build has no such fabric, and how to get it; empty when it has.
std::string why_no_tcp();

// Blocks until all workers are there. Drives the loop meanwhile, so nothing else does. Throws
// ConfigError for options that cannot be, IoError when a worker does not come or shows something
// else than the others.
std::unique_ptr<Fabric> make_tcp_fabric(Loop& loop, const TcpOptions& options);

}  // namespace skein
