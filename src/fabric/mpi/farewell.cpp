#include "fabric/mpi/farewell.h"

#include <algorithm>
#include <thread>

namespace skein::mpi {
namespace {

using namespace std::chrono_literals;

constexpr Duration kAskEvery = 1s;

// How long those who have failed, or wait for one that has, get to leave.
constexpr Duration kAfterAFailure = 2s;

}  // namespace

Farewell::Farewell(std::unique_ptr<Mail> mail, std::vector<bool> left, bool failed,
                   Duration patience)
    : mail_(std::move(mail)),
      left_(std::move(left)),
      heard_(left_.size(), SteadyClock().now()),
      failed_(failed),
      patience_(patience) {}

bool Farewell::take(const Arrived& arrived) {
  const auto from = static_cast<std::size_t>(arrived.from);
  heard_[from] = SteadyClock().now();
  if (arrived.header.kind == Kind::left) left_[from] = true;
  if (arrived.header.kind == Kind::failed) failed_ = true;
  return true;
}

void Farewell::ask(Time now) {
  if (now - asked_ < kAskEvery) return;
  asked_ = now;
  for (std::size_t rank = 0; rank < left_.size(); ++rank)
    if (!left_[rank] && mail_->under_way(static_cast<int>(rank)) == 0)
      mail_->send(static_cast<int>(rank), {Kind::ask});
}

bool Farewell::poll() {
  mail_->poll([this](const Arrived& arrived) { return take(arrived); });
  return !mail_->under_way() && std::find(left_.begin(), left_.end(), false) == left_.end();
}

bool Farewell::wait(int& who) {
  const SteadyClock clock;
  const Time begin = clock.now();
  std::fill(heard_.begin(), heard_.end(), begin);
  while (!poll()) {
    const Time now = clock.now();
    const Duration limit = failed_ ? kAfterAFailure : patience_;
    for (std::size_t rank = 0; rank < left_.size(); ++rank) {
      if (left_[rank] && mail_->under_way(static_cast<int>(rank)) == 0) continue;
      who = static_cast<int>(rank);
      if (now - (failed_ ? begin : heard_[rank]) >= limit) return false;
    }
    if (!mail_->trouble().empty()) return false;
    ask(now);
    std::this_thread::sleep_for(std::min<Duration>(1ms, (now - begin) / 8 + 10us));
  }
  return true;
}

}  // namespace skein::mpi
