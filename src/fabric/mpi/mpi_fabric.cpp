#include "fabric/mpi/mpi_fabric.h"

#include <algorithm>
#include <thread>

#include "fabric/mpi/session.h"

namespace skein::mpi {
namespace {

using namespace std::chrono_literals;

// How long one that leaves waits until its last messages, which nobody waits for, have left.
constexpr Duration kLastMessages = 2s;

}  // namespace

MpiFabric::MpiFabric(Loop& loop, MPI_Comm communicator, Duration patience, Duration longest_nap)
    : MpiFabric(loop, std::make_unique<Mail>(communicator), patience, longest_nap) {}

MpiFabric::MpiFabric(Loop& loop, std::unique_ptr<Mail> mail, Duration patience,
                     Duration longest_nap)
    : BoxedFabric(loop, mail->rank(), mail->size()),
      mail_(std::move(mail)),
      patience_(patience),
      back_off_([this] { return look(); }, longest_nap),
      take_([this](const Arrived& arrived) { return peer(arrived.from).take(arrived); }) {
  peers_.reserve(static_cast<std::size_t>(size()));
  for (int each = 0; each < size(); ++each)
    peers_.push_back(each == rank() ? nullptr
                                    : std::make_unique<Peer>(loop, *mail_, signs(), each));
  Session::of_this_process().begin();
}

MpiFabric::~MpiFabric() {
  const SteadyClock clock;
  const auto waits = [this] {
    return std::any_of(peers_.begin(), peers_.end(),
                       [](const auto& each) { return each && each->has_more(); });
  };
  for (const Time end = clock.now() + kLastMessages; waits() && clock.now() < end;) {
    look();
    std::this_thread::sleep_for(100us);
  }
  std::vector<bool> left(static_cast<std::size_t>(size()), true);
  bool failed = failed_;
  for (int each = 0; each < size(); ++each) {
    if (each == rank()) continue;
    mail_->send(each, {Kind::left});
    left[static_cast<std::size_t>(each)] = peer(each).left();
    failed |= !peer(each).failure().empty();
  }
  Session::of_this_process().keep(
      std::make_unique<Farewell>(std::move(mail_), std::move(left), failed, patience_));
}

bool MpiFabric::look() {
  const bool moved = mail_->poll(take_);
  for (const auto& each : peers_)
    if (each && each->may_send()) each->send();
  return moved;
}

void MpiFabric::fail(const std::string& reason) {
  failed_ = true;
  BoxedFabric::fail(reason);
}

}  // namespace skein::mpi
