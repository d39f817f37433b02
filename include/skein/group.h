// Some workers of a run.
#pragma once

#include <memory>
#include <vector>

#include "skein/workers.h"

namespace skein {

// Made by World::group() and World::split(). Has its own ranks from 0, in the order of the world's;
// errors name the world's. Groups and the world may be used in turn, each in one order by all its
// members. Keeps the world going while it lives. Losses are not tolerated in a group.
class Group : public Workers {
 public:
  // Whether this worker is in it. Where not, it has no rank, and its calls are ConfigErrors.
  bool member() const { return member_; }

  // Ranks of the world, in the order of the group's own.
  const std::vector<int>& ranks() const { return ranks_; }

 private:
  friend class World;
  Group(std::shared_ptr<Calls> calls, std::vector<int> ranks)
      : Workers(std::move(calls)), ranks_(std::move(ranks)), member_(this->has_calls()) {}
  std::vector<int> ranks_;
  bool member_;
};

}  // namespace skein
