#include "fabric/local/segment.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>

#include "core/check.h"
#include "core/units.h"
#include "skein/error.h"

namespace skein::shm {
namespace {

constexpr std::size_t kSharedPart = 16 * kPage;  // that small blocks share

[[noreturn]] void fail(const char* what) {
  throw Error(fmt::format("shared memory: {}: {}", what, std::strerror(errno)));
}

// Few different sizes, so that what was released fits what is asked for next. What is never touched
// of a block takes no memory.
std::size_t block_size(std::size_t wanted) {
  const std::size_t bytes = std::max<std::size_t>(wanted, 64);
  if (bytes <= kPage) return std::bit_ceil(bytes);
  const std::size_t step = std::max(kPage, std::bit_floor(bytes) / 8);
  return (bytes + step - 1) / step * step;
}

FileDescriptor create_file(std::size_t bytes) {
  static_assert(std::atomic<std::uint64_t>::is_always_lock_free,
                "atomics are shared between processes");
  FileDescriptor fd(::memfd_create("skein", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!fd.valid()) fail("memfd_create");
  if (::ftruncate(fd.get(), static_cast<off_t>(bytes)) != 0) fail("ftruncate");
  if (::fcntl(fd.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_SEAL) != 0) fail("F_ADD_SEALS");
  return fd;
}

FileDescriptor checked(FileDescriptor fd, int rank, std::size_t bytes) {
  struct stat status {};
  const int seals = ::fcntl(fd.get(), F_GET_SEALS);
  if (seals < 0 || (seals & F_SEAL_SHRINK) == 0 || ::fstat(fd.get(), &status) != 0 ||
      status.st_size < static_cast<off_t>(bytes))
    throw IoError(fmt::format("rank {} brought shared memory that cannot be used: it is too small, "
                              "or could shrink",
                              rank),
                  rank);
  return fd;
}

}  // namespace

OwnSegment::OwnSegment(int ranks)
    : SharedFile(create_file(reserved(ranks)), ranks), end_(reserved(ranks)) {}

OwnSegment::~OwnSegment() {
  for (const auto& [address, part] : parts_) ::munmap(const_cast<std::byte*>(address), part.bytes);
}

// A file that grows beyond what is allowed would end the process by a signal.
std::uint64_t OwnSegment::grow(std::size_t bytes) {
  const std::uint64_t begin = end_;
  rlimit file{};
  if (::getrlimit(RLIMIT_FSIZE, &file) == 0 && file.rlim_cur != RLIM_INFINITY &&
      end_ + bytes > file.rlim_cur)
    throw ConfigError(
        fmt::format("shared memory: a worker needs {}, and ulimit -f allows files of {}",
                    print_bytes(static_cast<double>(end_ + bytes)),
                    print_bytes(static_cast<double>(file.rlim_cur))));
  if (::ftruncate(fd(), static_cast<off_t>(end_ + bytes)) != 0) fail("ftruncate");
  end_ += bytes;
  return begin;
}

std::byte* OwnSegment::add_part(std::size_t bytes) {
  const std::uint64_t offset = grow(bytes);
  std::byte* const address = map(offset, bytes);
  parts_.emplace(address, Part{offset, bytes});
  return address;
}

Span OwnSegment::allocate(std::size_t count, Type type) {
  const std::size_t size = block_size(count * size_of(type));
  const std::lock_guard lock(mutex_);
  auto& spare = free_[size];
  if (spare.empty()) {
    const std::size_t bytes = size <= kPage ? kSharedPart : size;
    std::byte* const address = add_part(bytes);
    for (std::size_t at = bytes; at > 0; at -= size) spare.push_back(address + at - size);
  }
  const Span memory{spare.back(), count, Device::cpu, type};
  spare.pop_back();
  // Large blocks are holes of the file since they were released, and read as zeros.
  if (size <= kPage)
    std::memset(memory.data, 0, memory.bytes());
  else
    header().allocated.fetch_add(memory.bytes(), std::memory_order_relaxed);
  return memory;
}

void OwnSegment::release(Span memory) {
  const std::size_t size = block_size(memory.bytes());
  const std::lock_guard lock(mutex_);
  const auto found = find(memory.data);
  if (size > kPage) header().allocated.fetch_sub(memory.bytes(), std::memory_order_relaxed);
  if (size > kPage && ::fallocate(fd(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
                                  static_cast<off_t>(found->second.offset),
                                  static_cast<off_t>(found->second.bytes)) != 0)
    std::memset(memory.data, 0, memory.bytes());
  free_[size].push_back(static_cast<std::byte*>(memory.data));
}

OwnSegment::Parts::const_iterator OwnSegment::find(const void* data) const {
  auto found = parts_.upper_bound(static_cast<const std::byte*>(data));
  if (found == parts_.begin()) return parts_.end();
  --found;
  const auto inside = static_cast<const std::byte*>(data) - found->first;
  return inside < static_cast<std::ptrdiff_t>(found->second.bytes) ? found : parts_.end();
}

std::optional<Place> OwnSegment::place_of(Span memory) const {
  const std::lock_guard lock(mutex_);
  const auto found = find(memory.data);
  if (found == parts_.end()) return std::nullopt;
  const auto offset =
      static_cast<std::uint64_t>(static_cast<std::byte*>(memory.data) - found->first);
  return Place{found->second.offset, found->second.bytes, offset, memory.bytes()};
}

void OwnSegment::move_away(Span memory) {
  const std::lock_guard lock(mutex_);
  const auto found = find(memory.data);
  SKEIN_CHECK(found != parts_.end(), "memory that is not shared is to be moved");
  const Part old = found->second;
  auto* const address = const_cast<std::byte*>(found->first);
  const std::uint64_t offset = grow(old.bytes);
  std::byte* const copy = map(offset, old.bytes);
  std::memcpy(copy, address, old.bytes);
  map(offset, old.bytes, address);
  ::munmap(copy, old.bytes);
  parts_.at(address) = Part{offset, old.bytes};
}

PeerSegment::PeerSegment(FileDescriptor fd, int rank, int ranks)
    : SharedFile(checked(std::move(fd), rank, reserved(ranks)), ranks), rank_(rank) {}

PeerSegment::~PeerSegment() {
  for (const auto& [offset, part] : parts_) ::munmap(part.data, part.bytes());
}

Span PeerSegment::at(const Place& place, Type type) {
  if (place.bytes == 0) return {nullptr, 0, Device::cpu, type};
  Span& part = parts_[place.part];
  if (part.count == 0) {
    struct stat status {};
    const bool whole = place.part % kPage == 0 && place.part_bytes % kPage == 0 &&
                       place.part_bytes > 0 && ::fstat(fd(), &status) == 0 &&
                       place.part_bytes <= static_cast<std::uint64_t>(status.st_size) &&
                       place.part <= static_cast<std::uint64_t>(status.st_size) - place.part_bytes;
    if (whole)
      part = {map(place.part, place.part_bytes), place.part_bytes, Device::cpu, Type::byte};
  }
  const std::size_t size = size_of(type);
  if (place.offset % size != 0 || place.bytes % size != 0 || place.offset > part.count ||
      place.bytes > part.count - place.offset)
    throw IoError(fmt::format("rank {} offers memory that it does not have", rank_), rank_);
  return {part.at({place.offset, place.bytes}).data, place.bytes / size, Device::cpu, type};
}

}  // namespace skein::shm
