// An exchange of two ranks in the one order of launches: they meet, and rank 0 gives it a number of
// both.
#include <fmt/format.h>

#include "core/packed.h"
#include "fabric/nccl/nccl_fabric.h"
#include "skein/error.h"

namespace skein {

using nccl::Note;

namespace {

// What one of the two has come with.
struct Sizes {
  std::uint64_t sends = 0, takes = 0;  // bytes
};

}  // namespace

// From when the other may have heard of it, a number may come for it.
class NcclFabric::Appointment {
 public:
  Appointment(NcclFabric& fabric, int peer, Channel channel)
      : fabric_(fabric), key_(peer, channel) {}
  Appointment(const Appointment&) = delete;
  Appointment& operator=(const Appointment&) = delete;
  ~Appointment() {
    if (open) ++fabric_.given_up_[key_];
    if (open && !fabric_.granted_[key_].empty()) fabric_.granted(key_.first, key_.second, take());
  }

  bool has_number() const { return !fabric_.granted_[key_].empty(); }
  std::uint64_t take() {
    auto& numbers = fabric_.granted_[key_];
    const std::uint64_t first = numbers.front();
    numbers.pop_front();
    return first;
  }
  bool open = true;

 private:
  NcclFabric& fabric_;
  std::pair<int, Channel> key_;
};

Task<> NcclFabric::run_exchange(const Operation& operation, int peer, Span out, Span in) {
  if (!takes(out) || !takes(in)) return by_messages_.run_exchange(operation, peer, out, in);
  count_sent(out.bytes());
  return on_control(operation, exchange_on_nccl(operation, peer, out, in));
}

Task<> NcclFabric::exchange_on_nccl(const Operation& operation, int peer, Span out, Span in) {
  check_not_over(operation);
  const Duration longest = allowance(operation);
  Appointment appointment(*this, peer, operation.channel);
  Sizes mine{out.bytes(), in.bytes()}, theirs;
  Sending sending(*this, operation, peer);
  count_meeting(sizeof(mine));
  co_await sending.start(message_in(mine));
  co_await receive_into(operation, peer, message_in(theirs), Combine::copy);
  if (theirs.sends != mine.takes || theirs.takes != mine.sends) {
    appointment.open = false;  // the other sees it, too
    throw IoError(fmt::format("{}: rank {} sends {} bytes and takes {}, rank {} sends {} and takes "
                              "{}",
                              describe(operation), peer, theirs.sends, theirs.takes, rank(),
                              mine.sends, mine.takes),
                  peer);
  }
  co_await sending.finish();
  if (rank() == 0) grant(0, peer, operation.channel);
  if (rank() != 0 && rank() < peer) tell(0, {Note::ask, peer, operation.channel, 0, 0, {}});
  const Time begin = loop().now();
  const Time until = longest >= kNever - begin ? kNever : begin + longest;
  while (!appointment.has_number()) {
    check_not_over(operation);
    if (lost_ && lost_->peer == 0)
      throw IoError(fmt::format("{}: {}", describe(operation), lost_->why), 0);
    if (loop().now() >= until) throw TooLate(operation, 0);
    co_await changed_.wait(until);
  }
  const std::uint64_t number = appointment.take();
  appointment.open = false;
  const Stages stages{{[=, this](nccl::Comm comm, nccl::Stream stream) {
    if (out.count > 0)
      comm_->check(api_.send(out.data, out.bytes(), nccl::DataType::byte, peer, comm, stream),
                   "ncclSend");
    if (in.count > 0)
      comm_->check(api_.recv(in.data, in.bytes(), nccl::DataType::byte, peer, comm, stream),
                   "ncclRecv");
  }}};
  co_await pledged(operation, launch(operation, number, stages, longest));
}

void NcclFabric::grant(int one, int other, Channel channel) {
  if (other < 0 || other >= size() || other == one)
    return end_nccl(fmt::format("rank {} asked for an exchange with rank {}", one, other), one);
  for (const auto& [from, to] : {std::pair{one, other}, std::pair{other, one}}) {
    const std::uint64_t number = numbers_[static_cast<std::size_t>(from)]++;
    if (from == 0)
      granted(to, channel, number);
    else
      tell(from, {Note::grant, to, channel, 0, number, {}});
  }
}

void NcclFabric::granted(int partner, Channel channel, std::uint64_t number) {
  if (int& given_up = given_up_[{partner, channel}]; given_up > 0) {
    --given_up;
    return end_nccl(fmt::format("rank {} has given up an exchange with rank {}", rank(), partner),
                    rank());
  }
  granted_[{partner, channel}].push_back(number);
  changed_.notify_all();
}

}  // namespace skein
