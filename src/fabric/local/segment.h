// The memory of this worker that peers can reach, and a peer's.
#pragma once

#include <map>
#include <mutex>
#include <optional>
#include <unordered_map>
#include <vector>

#include "fabric/local/shared_file.h"

namespace skein::shm {

// Memory is taken from parts of the file: a large block is a part of its own, small ones share one.
// allocate(), release() and place_of() are thread-safe.
class OwnSegment final : public SharedFile {
 public:
  explicit OwnSegment(int ranks);
  ~OwnSegment();

  // Zeroed memory, 64-byte aligned, which the host gives as it is touched. Throws ConfigError where
  // addresses or sizes of files are limited.
  Span allocate(std::size_t count, Type type = Type::f32);
  void release(Span memory);

  // Where `memory` lies, if it lies here.
  std::optional<Place> place_of(Span memory) const;

  // Puts the whole part that holds `memory` elsewhere in the file, at the same addresses and with
  // the same contents: what a peer still writes to the old place reaches nobody. The old place is
  // never used again.
  void move_away(Span memory);

 private:
  struct Part {
    std::uint64_t offset;
    std::size_t bytes;
  };
  using Parts = std::map<const std::byte*, Part>;  // by address

  Parts::const_iterator find(const void* data) const;
  std::byte* add_part(std::size_t bytes);
  std::uint64_t grow(std::size_t bytes);

  mutable std::mutex mutex_;
  std::uint64_t end_;  // of the file
  Parts parts_;
  std::map<std::size_t, std::vector<std::byte*>> free_;  // by size of the block
};

class PeerSegment final : public SharedFile {
 public:
  // Throws IoError unless it is a segment of a run of so many ranks that cannot shrink.
  PeerSegment(FileDescriptor fd, int rank, int ranks);
  ~PeerSegment();

  // The values at `place`. Throws IoError that names the peer if they are not in its file, or are
  // not whole ones.
  Span at(const Place& place, Type type);

 private:
  int rank_;
  std::unordered_map<std::uint64_t, Span> parts_;  // by offset
};

}  // namespace skein::shm
