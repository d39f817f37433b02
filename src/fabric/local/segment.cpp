#include "fabric/local/segment.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>

#include "core/check.h"
#include "skein/error.h"

namespace skein::local {
namespace {

constexpr std::size_t kPage = 4096;

[[noreturn]] void fail(const char* what) {
  throw Error(fmt::format("shared memory: {}: {}", what, std::strerror(errno)));
}

// The file is sparse: this reserves addresses, not memory. Twice the host's memory is more than can
// ever be used of it.
std::size_t address_space() {
  const auto pages = static_cast<std::size_t>(::sysconf(_SC_PHYS_PAGES));
  return std::bit_ceil(2 * pages * static_cast<std::size_t>(::sysconf(_SC_PAGESIZE)));
}

std::size_t block_size(std::size_t count) {
  const std::size_t bytes = std::max<std::size_t>(count * sizeof(float), 64);
  return bytes <= kPage ? std::bit_ceil(bytes) : (bytes + kPage - 1) / kPage * kPage;
}

}  // namespace

Segment Segment::create() {
  static_assert(std::atomic<std::uint64_t>::is_always_lock_free,
                "atomics are shared between processes");
  FileDescriptor fd(::memfd_create("skein", MFD_CLOEXEC));
  if (!fd.valid()) fail("memfd_create");
  const std::size_t bytes = address_space();
  if (::ftruncate(fd.get(), static_cast<off_t>(bytes)) != 0) fail("ftruncate");
  return Segment(std::move(fd), bytes);
}

Segment Segment::map(FileDescriptor fd) {
  struct stat status {};
  if (::fstat(fd.get(), &status) != 0) fail("fstat");
  const auto bytes = static_cast<std::size_t>(status.st_size);
  if (bytes < sizeof(Header)) throw Error("shared memory: a peer's segment is too small");
  return Segment(std::move(fd), bytes);
}

Segment::Segment(FileDescriptor fd, std::size_t bytes) : fd_(std::move(fd)), bytes_(bytes) {
  void* base =
      ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, fd_.get(), 0);
  if (base == MAP_FAILED) fail("mmap");
  base_ = static_cast<std::byte*>(base);
  used_ = (sizeof(Header) + kPage - 1) / kPage * kPage;
}

Segment::Segment(Segment&& other) noexcept
    : fd_(std::move(other.fd_)),
      base_(std::exchange(other.base_, nullptr)),
      bytes_(other.bytes_),
      used_(other.used_),
      free_(std::move(other.free_)) {}

Segment::~Segment() {
  if (base_) ::munmap(base_, bytes_);
}

bool Segment::contains(const void* data, std::size_t bytes) const {
  const auto* first = static_cast<const std::byte*>(data);
  return first >= base_ && first + bytes <= base_ + bytes_;
}

std::uint64_t Segment::offset_of(const void* data) const {
  return static_cast<std::uint64_t>(static_cast<const std::byte*>(data) - base_);
}

Span Segment::allocate(std::size_t count) {
  const std::size_t size = block_size(count);
  auto& spare = free_[size];
  if (!spare.empty()) {
    const Span memory{at(spare.back()), count};
    spare.pop_back();
    std::memset(memory.data, 0, memory.bytes());
    return memory;
  }
  if (size > bytes_ - used_)
    throw Error(fmt::format("shared memory: no room for {} bytes, {} of {} are in use", size, used_,
                            bytes_));
  const Span memory{at(used_), count};
  used_ += size;
  return memory;
}

void Segment::release(Span memory) {
  const std::size_t size = block_size(memory.count);
  const std::uint64_t offset = offset_of(memory.data);
  // Give large blocks back to the system; the addresses stay ours.
  if (size > kPage)
    ::fallocate(fd_.get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, static_cast<off_t>(offset),
                static_cast<off_t>(size));
  free_[size].push_back(offset);
}

}  // namespace skein::local
