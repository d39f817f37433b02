#include "fabric/levels.h"

#include <algorithm>
#include <map>

#include "fabric/group.h"

namespace skein {

Hosts::Hosts(std::vector<int> host_of) : host_of_(std::move(host_of)) {
  std::map<int, int> sizes;
  for (const int host : host_of_) ++sizes[host];
  count_ = static_cast<int>(sizes.size());
  if (count_ == 0 || host_of_.size() % sizes.size() != 0) return;
  const std::size_t each = host_of_.size() / sizes.size();
  for (std::size_t rank = 0; rank < host_of_.size(); ++rank)
    if (host_of_[rank] != host_of_[rank / each * each]) return;
  each_ = static_cast<int>(each);
}

std::vector<int> Hosts::mates(int rank) const {
  std::vector<int> out;
  for (std::size_t each = 0; each < host_of_.size(); ++each)
    if (host_of_[each] == host_of_[static_cast<std::size_t>(rank)])
      out.push_back(static_cast<int>(each));
  return out;
}

LevelsFabric::LevelsFabric(std::unique_ptr<Fabric> whole, const Hosts& hosts)
    : ForwardingFabric(*whole, nullptr, static_cast<MessageCollectives&>(*this)),
      MessageCollectives(static_cast<Fabric&>(*this)),
      whole_(std::move(whole)),
      mates_(hosts.mates(rank())),
      each_(hosts.each()) {
  if (mates_.size() > 1) inside_ = group_of(*whole_, mates_);
  make_levels(hosts);
}

LevelsFabric::LevelsFabric(std::unique_ptr<Fabric> whole, std::unique_ptr<Fabric> inside,
                           const Hosts& hosts, std::unique_ptr<EventSource> events)
    : ForwardingFabric(*whole, inside.get(), static_cast<MessageCollectives&>(*this)),
      MessageCollectives(static_cast<Fabric&>(*this)),
      events_(std::move(events)),
      whole_(std::move(whole)),
      inside_(std::move(inside)),
      mates_(hosts.mates(rank())),
      each_(hosts.each()) {
  SKEIN_CHECK(inside_->size() == std::ssize(mates_), "rank {} of another host than it is on",
              rank());
  make_levels(hosts);
}

void LevelsFabric::make_levels(const Hosts& hosts) {
  if (!inside_ || each_ == 0) return;
  std::vector<int> across(static_cast<std::size_t>(hosts.count()));
  for (int host = 0; host < hosts.count(); ++host)
    across[static_cast<std::size_t>(host)] = host * each_ + rank() % each_;
  between_ = group_of(*whole_, std::move(across));
}

LevelsFabric::~LevelsFabric() = default;

Traits LevelsFabric::traits() const {
  Traits out = ForwardingFabric::traits();
  if (!inside_) return out;
  const Traits inside = inside_->traits();
  out.ring_order &= inside.ring_order && (!between_ || between_->size() == 1);
  out.survives_losses &= inside.survives_losses;
  return out;
}

Range LevelsFabric::part_of(std::size_t count, int rank) const {
  if (!between_) return MessageCollectives::part_of(count, rank);
  const Range outer = shard(count, each_, rank % each_);
  const Range inner = shard(outer.count, size() / each_, rank / each_);
  return {outer.offset + inner.offset, inner.count};
}

Fabric::Route LevelsFabric::route(int peer, Channel channel) {
  const auto mate = std::ranges::find(mates_, peer);
  if (!inside_ || mate == mates_.end()) return ForwardingFabric::route(peer, channel);
  return inside_->route(static_cast<int>(mate - mates_.begin()), channel);
}

Span LevelsFabric::lane(Span buffer) const {
  return buffer.at(inside_->part(buffer.count, inside_->rank()));
}

Task<> LevelsFabric::run_reduce_scatter(const Operation& operation, Span buffer, Wire wire) {
  if (!between_) {
    co_await MessageCollectives::run_reduce_scatter(operation, buffer, wire);
    co_return;
  }
  co_await inside_->reduce_scatter(operation.channel, buffer, operation.limit);
  next_may_begin(operation);  // behind what this one is about to begin
  co_await between_->reduce_scatter(operation.channel, lane(buffer), operation.limit, wire);
}

Task<> LevelsFabric::run_all_gather(const Operation& operation, Span buffer, Wire wire) {
  if (!between_) {
    co_await MessageCollectives::run_all_gather(operation, buffer, wire);
    co_return;
  }
  co_await between_->all_gather(operation.channel, lane(buffer), operation.limit, wire);
  next_may_begin(operation);  // behind what this one is about to begin
  co_await inside_->all_gather(operation.channel, buffer, operation.limit);
}

Task<> LevelsFabric::run_all_reduce(const Operation& operation, Span buffer, Wire wire) {
  if (!between_) {
    co_await MessageCollectives::run_all_reduce(operation, buffer, wire);
    co_return;
  }
  co_await inside_->reduce_scatter(operation.channel, buffer, operation.limit);
  next_may_begin(operation);  // behind what this one is about to begin
  co_await between_->all_reduce(operation.channel, lane(buffer), operation.limit, wire);
  // The next one's reduce-scatter may have come before this on some workers only: hence a channel
  // of its own.
  co_await inside_->all_gather(operation.channel + kSecondChannels, buffer, operation.limit);
}

Task<> LevelsFabric::run_combine(const Operation& operation, Span record, const Merge& merge) {
  if (!between_) {
    co_await MessageCollectives::run_combine(operation, record, merge);
    co_return;
  }
  co_await inside_->combine(operation.channel, record, merge, operation.limit);
  co_await between_->combine(operation.channel, record, merge, operation.limit);
}

Task<> LevelsFabric::run_broadcast(const Operation& operation, Span buffer, int root) {
  if (!between_) {
    co_await MessageCollectives::run_broadcast(operation, buffer, root);
    co_return;
  }
  if (rank() % each_ == root % each_)
    co_await between_->broadcast(operation.channel, buffer, root / each_, operation.limit);
  co_await inside_->broadcast(operation.channel, buffer, root % each_, operation.limit);
}

}  // namespace skein
