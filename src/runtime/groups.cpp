// Groups of a world's workers.
#include <fmt/format.h>

#include <algorithm>

#include "core/print_ranks.h"
#include "fabric/group.h"
#include "runtime/world_impl.h"

namespace skein {
namespace {

// A group on its part of the world's fabric. Both go while nobody else drives the loop.
struct Apart {
  std::shared_ptr<World::Impl> world;
  std::unique_ptr<Fabric> fabric;
  std::unique_ptr<Workers::Calls> calls;

  ~Apart() {
    world->courier().with_loop([this] {
      calls.reset();
      fabric.reset();
    });
  }
};

}  // namespace

Group World::make_group(std::vector<int> ranks) {
  auto apart = std::make_shared<Apart>();
  apart->world = impl_;
  impl_->courier().with_loop([&] { apart->fabric = group_apart(impl_->fabric(), ranks); });
  if (!apart->fabric) return {nullptr, std::move(ranks)};
  apart->calls = std::make_unique<Calls>(*apart->fabric, impl_->courier(),
                                         impl_->options().patience, ranks, "group");
  return {std::shared_ptr<Calls>(apart, apart->calls.get()), std::move(ranks)};
}

Group World::group(const std::vector<int>& ranks) {
  std::vector<int> sorted = ranks;
  std::ranges::sort(sorted);
  calls().meet(
      fmt::format("world.group() of {}", sorted.empty() ? "no ranks" : print_ranks(sorted)));
  const bool twice = std::ranges::adjacent_find(sorted) != sorted.end();
  if (sorted.empty() || sorted.front() < 0 || sorted.back() >= size() || twice)
    throw ConfigError(
        fmt::format("world.group() of {}: expected one or more ranks from 0 to {}, each once",
                    sorted.empty() ? "no ranks" : print_ranks(sorted), size() - 1));
  return make_group(std::move(sorted));
}

Group World::split(int colour) {
  const auto colours = calls().gather("world.split()", std::as_bytes(std::span(&colour, 1)));
  std::vector<int> members;
  for (std::size_t rank = 0; rank < colours.size(); ++rank)
    if (std::ranges::equal(colours[rank], std::as_bytes(std::span(&colour, 1))))
      members.push_back(static_cast<int>(rank));
  return make_group(std::move(members));
}

}  // namespace skein
