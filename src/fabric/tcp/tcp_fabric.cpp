#include "fabric/tcp/tcp_fabric.h"

#include <algorithm>
#include <thread>

#include "fabric/tcp/meeting.h"

namespace skein {

std::string why_no_tcp() { return ""; }

std::unique_ptr<Fabric> make_tcp_fabric(Loop& loop, const TcpOptions& options) {
  return std::make_unique<tcp::TcpFabric>(loop, options);
}

namespace tcp {
namespace {

using namespace std::chrono_literals;

// How long one that leaves waits until its peers' systems have all that it sent.
constexpr Duration kFarewell = 2s;

Proof proof_of(const TcpOptions& options) {
  if (!options.secret_file.empty()) return read_secret(options.secret_file, options.run);
  return CertificateFiles{options.tls_cert_file, options.tls_key_file, options.tls_ca_file};
}

ConnectionOptions connection_options(const TcpOptions& options) {
  return {options.least_silence, static_cast<std::size_t>(options.streams),
          static_cast<std::size_t>(options.most_streams), options.join_timeout};
}

}  // namespace

TcpFabric::TcpFabric(Loop& loop, const TcpOptions& options)
    : BoxedFabric(loop, options.rank, options.size), options_(options), tls_(proof_of(options)) {
  const ConnectionOptions each = connection_options(options);
  Met met = meet(loop, poller_, tls_, options_);
  for (auto& stream : met.streams)
    peers_.push_back(stream ? std::make_unique<Connection>(loop, std::move(stream), signs(), each)
                            : nullptr);
  repairs_ = std::make_unique<Repairs>(loop, poller_, tls_, options_, std::move(met), peers_);
  poller_.tick_every(kBeatEvery, [this] { beat(); });
}

void TcpFabric::beat() {
  for (const auto& peer : peers_)
    if (peer) peer->beat();
}

TcpFabric::~TcpFabric() {
  const SteadyClock clock;
  // What was sent last may be lost with its stream. Who is about to leave drives the loop for that
  // himself, unless others have left something on it that must not run any more.
  const bool alone = !loop().busy();
  if (alone) repairs_->begin_anew();
  for (const auto& peer : peers_) {
    if (!peer) continue;
    if (!alone) peer->on_broken = nullptr;
    peer->leave();
  }
  const auto all_gone = [this] {
    return std::all_of(peers_.begin(), peers_.end(),
                       [](const auto& peer) { return !peer || peer->gone(); });
  };
  for (const Time end = clock.now() + kFarewell; !all_gone() && clock.now() < end;) {
    if (alone) {
      poller_.poll();
      loop().run_ready();
    }
    std::this_thread::sleep_for(200us);
  }
}

}  // namespace tcp
}  // namespace skein
