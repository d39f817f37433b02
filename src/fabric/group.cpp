#include "fabric/group.h"

#include <algorithm>
#include <cstring>

#include "fabric/rows.h"

namespace skein {

// Its messages are the whole's, between other numbers and on other channels.
class GroupFabric final : public Fabric {
 public:
  GroupFabric(Fabric& whole, std::vector<int> members, Channel first, Channel channels)
      : Fabric(whole.loop()),
        whole_(whole),
        members_(std::move(members)),
        first_(first),
        channels_(channels) {
    rank_ = static_cast<int>(std::ranges::find(members_, whole.rank()) - members_.begin());
  }

  std::string name() const override { return whole_.name(); }
  int rank() const override { return rank_; }
  int size() const override { return static_cast<int>(members_.size()); }
  Traits traits() const override { return whole_.traits(); }
  Chunking chunking() const override { return whole_.chunking(); }
  void progressed() override { whole_.progressed(); }
  void fail(const std::string& reason) override { whole_.fail(reason); }
  std::optional<bool> expel(int peer) override { return whole_.expel(member(peer)); }
  bool expelled(int rank) const override { return whole_.expelled(member(rank)); }

 protected:
  std::unique_ptr<Memory> allocate_on_host(std::size_t count, Type type) override {
    return whole_.allocate_on_host(count, type);
  }
  std::unique_ptr<Memory> allocate_on_device(std::size_t count, Type type) override {
    return whole_.allocate_on_device(count, type);
  }
  Route route(int peer, Channel channel) override {
    SKEIN_CHECK(channel < channels_, "channel {} of {} of a group", channel, channels_);
    return whole_.route(member(peer), first_ + channel);
  }

 private:
  int member(int rank) const { return members_[static_cast<std::size_t>(rank)]; }

  Fabric& whole_;
  std::vector<int> members_;  // ranks of the whole
  Channel first_, channels_;
  int rank_;
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
