#include "proxy/proxied_ranks.h"

#include "runtime/courier.h"
#include "skein/error.h"

namespace skein {
namespace {

RankEnd run_rank(const TcpOptions& options, const ProxiedRanks::Body& body) {
  RankEnd end;
  const SteadyClock clock;
  const Time begin = clock.now();
  try {
    Loop loop(clock);
    const auto fabric = make_tcp_fabric(loop, options);
    std::exception_ptr error;
    {
      Courier courier(loop, fabric->events());
      try {
        courier.wait(body(*fabric));
      } catch (...) {
        error = std::current_exception();
      }
    }
    end.took = clock.now() - begin;
    loop.abandon_jobs();
    if (error) std::rethrow_exception(error);
    end.ok = true;
  } catch (const IoError& error) {
    end.error = error.what();
    end.peer = error.peer();
  } catch (const std::exception& error) {
    end.error = error.what();
  }
  return end;
}

}  // namespace

ProxiedRanks::ProxiedRanks(int size, Change change) : size_(size), change_(std::move(change)) {}

void ProxiedRanks::start(const Body& body) {
  for (int rank = 0; rank < size_; ++rank) {
    TcpOptions options = run_.options(rank, size_);
    if (rank == 1) options.rendezvous = proxy_.address();
    change_(options);
    ranks_.push_back(
        std::async(std::launch::async, [options, body] { return run_rank(options, body); }));
  }
}

std::vector<RankEnd> ProxiedRanks::ends() {
  std::vector<RankEnd> out;
  for (auto& rank : ranks_) out.push_back(rank.get());
  return out;
}

}  // namespace skein
