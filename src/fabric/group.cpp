#include "fabric/group.h"

#include <algorithm>
#include <cstring>

#include "fabric/forwarding.h"
#include "fabric/rows.h"

namespace skein {

// Its messages are the whole's, between other numbers and on other channels.
class GroupFabric final : public ForwardingFabric, private MessageCollectives {
 public:
  GroupFabric(Fabric& whole, std::vector<int> members, Channel first, Channel channels)
      : ForwardingFabric(whole, std::move(members), static_cast<MessageCollectives&>(*this)),
        MessageCollectives(static_cast<Fabric&>(*this)),
        first_(first),
        channels_(channels) {}

  // All ranks of the whole meet, for all groups.
  Task<> meet_on_device(Limit) override { co_return; }
  Route route(int peer, Channel channel) override {
    SKEIN_CHECK(channel < channels_, "channel {} of {} of a group", channel, channels_);
    return ForwardingFabric::route(peer, first_ + channel);
  }

 private:
  Channel first_, channels_;
};

std::unique_ptr<Fabric> group_of(Fabric& whole, std::vector<int> members) {
  return std::make_unique<GroupFabric>(whole, std::move(members), 0, kMostChannels);
}

std::unique_ptr<Fabric> group_apart(Fabric& whole, std::vector<int> members) {
  const Channel first = whole.allot_channels();
  if (std::ranges::find(members, whole.rank()) == members.end()) return nullptr;
  return std::make_unique<GroupFabric>(whole, std::move(members), first, kChannelBlock);
}

Task<std::unique_ptr<Fabric>> split(Fabric& whole, int colour, Limit limit) {
  const Channel first = whole.allot_channels(), meeting = whole.allot_channels();
  Rows colours(whole.size(), sizeof(colour));
  colours.put(whole.rank(), std::as_bytes(std::span(&colour, 1)));
  const Merge merge = colours.merge();
  co_await whole.combine(meeting, colours.record(), merge, limit);
  std::vector<int> members;
  for (int rank = 0; rank < whole.size(); ++rank) {
    int theirs = 0;
    std::memcpy(&theirs, colours.row(rank).value().data(), sizeof(theirs));
    if (theirs == colour) members.push_back(rank);
  }
  co_return std::make_unique<GroupFabric>(whole, std::move(members), first, kChannelBlock);
}

}  // namespace skein
