// Whether all workers have the same model.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "core/span.h"
#include "skein/torch.h"

namespace skein {

// Returns a digest of these bytes in this order, at about the speed of memory. Values that differ
// in one word of 8 bytes always have different digests; others with all probability. It finds
// mistakes, not malice.
std::uint64_t digest_of(std::span<const std::byte> bytes);

// Compares digests of the workers' models. For the user's thread; all workers call the same.
class Replicas {
 public:
  explicit Replicas(Distributed::Impl& run) : run_(run) {}

  // Throws Error, naming the parameter and the ranks, unless all workers' parameters are bit-equal.
  // All call it after the same update.
  void verify();

  // Does so in the middle of `call`, after a flush. When a worker is lost in the middle of an
  // average the others may differ by a part of it, and go on: `where_all_live` lets them.
  enum class Differences { always, where_all_live };
  void compare(const std::string& call, Differences refused = Differences::always);

  // Ends a flush. ConfigError, on all workers, where the module of one of them is no longer the one
  // that was bound. A debug build compares the models, too.
  void check_module();

 private:
  std::vector<std::uint64_t> digests(Span parameters);
  std::string name_of_digest(std::size_t index) const;

  Distributed::Impl& run_;
};

}  // namespace skein
