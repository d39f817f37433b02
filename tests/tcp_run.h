// A place for the workers of a test to meet over TCP: a port of the loopback interface that nobody
// else gets meanwhile, and a secret.
#pragma once

#include <chrono>

#include "fabric/tcp/tcp.h"
#include "launch/meeting_place.h"

namespace skein {

class TcpRun {
 public:
  TcpOptions options(int rank, int size) const {
    TcpOptions out;
    out.rank = rank;
    out.size = size;
    out.rendezvous = place_.rendezvous();
    out.secret_file = place_.secret_file();
    out.join_timeout = std::chrono::seconds(120);
    return out;
  }

 private:
  MeetingPlace place_;
};

}  // namespace skein
