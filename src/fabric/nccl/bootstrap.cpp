// How ranks become a communicator: rank 0's name for it goes to all over the control plane, which
// knows who they are.
#include <fmt/format.h>

#include <cstring>

#include "core/packed.h"
#include "fabric/nccl/nccl_fabric.h"
#include "fabric/rows.h"
#include "skein/error.h"

namespace skein {
namespace {

// A channel that only meetings come to.
constexpr Channel kInviting = kMostChannels - 1;

constexpr Duration kPause = std::chrono::milliseconds(1);

struct Invitation {
  nccl::UniqueId id{};
  nccl::ShortText trouble;
};

}  // namespace

// What a rank says of itself.
struct NcclFabric::Answer {
  std::uint32_t has = 0;        // a queue of a device
  std::uint32_t as_before = 0;  // the one that all have met with
  nccl::ShortText trouble;
};

Task<std::vector<NcclFabric::Answer>> NcclFabric::hear_all(Answer own, Limit limit) {
  Rows table(size(), sizeof(own));
  table.put(rank(), std::as_bytes(std::span(&own, 1)));
  const Merge merge = table.merge();
  co_await control_->combine(kInviting, table.record(), merge, limit);
  std::vector<Answer> all(static_cast<std::size_t>(size()));
  for (int each = 0; each < size(); ++each)
    std::memcpy(&all[static_cast<std::size_t>(each)], table.row(each).value().data(), sizeof(own));
  co_return all;
}

void NcclFabric::forget_communicator() {
  comm_.reset();
  scratch_.reset();
  in_flight_.clear();
  numbers_.assign(static_cast<std::size_t>(size()), 0);
  launched_ = 0;
  granted_.clear();
  given_up_.clear();
  over_.clear();
  over_by_ = -1;
}

// What keeps this rank from it; empty: nothing. One that fails says so at once, since the others
// would wait for it.
Task<std::string> NcclFabric::join_all(Limit limit) {
  Invitation invitation;
  if (rank() == 0) {
    if (const nccl::Result result = api_.get_unique_id(&invitation.id);
        result != nccl::Result::success)
      invitation.trouble.say(fmt::format("NCCL says: {}", api_.get_error_string(result)));
  }
  co_await control_->broadcast(kInviting, message_in(invitation), 0, limit);
  std::string trouble = invitation.trouble.str();
  if (!trouble.empty()) co_return trouble;
  const Time begin = loop().now();
  const Time until = limit.never() ? kNever : limit.end(begin, {});
  try {
    comm_ =
        std::make_unique<nccl::Communicator>(api_, *loop().queue(), size(), invitation.id, rank());
    while (over_.empty() && !lost_ && comm_->state() == nccl::Result::in_progress &&
           loop().now() < until)
      co_await loop().sleep_for(kPause);
    if (!over_.empty()) co_return over_;
    if (lost_) throw Error(lost_->why);
    comm_->check(comm_->state(), "joining the ranks");
    if (comm_->state() == nccl::Result::in_progress)
      throw Error(fmt::format("NCCL did not join the ranks in {:.1f} s", seconds(until - begin)));
  } catch (const Error& error) {
    trouble = error.what();
  }
  if (!trouble.empty()) end_nccl(trouble, -1);
  co_return trouble;
}

// The control plane does not meet on devices where NCCL does: there its messages would make queues
// wait for each other, and an operation of NCCL waits for all of them.
Task<> NcclFabric::meet_on_device(Limit limit) {
  if (size() > 1) co_await meet_on_nccl(limit);
  if (!comm_) co_await ForwardingFabric::meet_on_device(limit);
}

Task<> NcclFabric::meet_on_nccl(Limit limit) {
  if (!over_.empty())
    throw IoError(fmt::format("NCCL cannot be used any more: {}", over_), over_by_);
  Answer own;
  own.has = loop().queue() ? 1 : 0;
  own.as_before = comm_ && &comm_->queue() == loop().queue() ? 1 : 0;
  auto answers = co_await hear_all(own, limit);
  const auto all = [&](std::uint32_t Answer::*what) {
    return std::ranges::all_of(answers, [&](const Answer& each) { return each.*what != 0; });
  };
  if (all(&Answer::as_before)) co_return;
  forget_communicator();
  why_not_.clear();
  if (!all(&Answer::has)) co_return;
  begin_to_watch();
  own.trouble.say(co_await join_all(limit));
  answers = co_await hear_all(own, limit.later(kPause * 1000));
  for (std::size_t each = 0; each < answers.size() && why_not_.empty(); ++each)
    if (const std::string trouble = answers[each].trouble.str(); !trouble.empty())
      why_not_ = fmt::format("rank {}: {}", each, trouble);
  if (why_not_.empty()) co_return;
  if (comm_) comm_->abort();
  if (required_)
    throw IoError(fmt::format("the nccl fabric: {}", why_not_), lost_ ? lost_->peer : -1);
  forget_communicator();
}

}  // namespace skein
