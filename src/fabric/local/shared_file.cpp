#include "fabric/local/shared_file.h"

#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>

#include "core/units.h"
#include "skein/error.h"

namespace skein::shm {
namespace {

[[noreturn]] void fail_to_map(std::size_t bytes, int error) {
  rlimit addresses{};
  ::getrlimit(RLIMIT_AS, &addresses);
  std::size_t pages = 0;
  std::ifstream("/proc/self/statm") >> pages;
  if (addresses.rlim_cur == RLIM_INFINITY)
    throw Error(fmt::format("shared memory: no addresses for {}: {}",
                            print_bytes(static_cast<double>(bytes)), std::strerror(error)));
  throw ConfigError(fmt::format(
      "shared memory: no addresses for {}: ulimit -v allows {}, of which {} are taken",
      print_bytes(static_cast<double>(bytes)), print_bytes(static_cast<double>(addresses.rlim_cur)),
      print_bytes(static_cast<double>(pages * kPage))));
}

}  // namespace

SharedFile::SharedFile(FileDescriptor fd, int ranks)
    : fd_(std::move(fd)),
      ranks_(ranks),
      header_(reinterpret_cast<Header*>(map(0, whole_pages(sizeof(Header))))) {}

SharedFile::~SharedFile() {
  ::munmap(header_, whole_pages(sizeof(Header)));
  for (const auto& [offset, row] : rows_) ::munmap(row, whole_pages(sizeof(MailRow)));
}

std::size_t SharedFile::reserved(int ranks) {
  return whole_pages(sizeof(Header)) + static_cast<std::size_t>(ranks) *
                                           (kMostChannels / kChannelBlock) *
                                           whole_pages(sizeof(MailRow));
}

// A core dump would read, and so fill, every hole of what is mapped.
std::byte* SharedFile::map(std::uint64_t offset, std::size_t bytes, void* at) const {
  void* base =
      ::mmap(at, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | (at != nullptr ? MAP_FIXED : 0),
             fd_.get(), static_cast<off_t>(offset));
  if (base == MAP_FAILED) fail_to_map(bytes, errno);
  ::madvise(base, bytes, MADV_DONTDUMP);
  return static_cast<std::byte*>(base);
}

std::uint64_t SharedFile::promised() const {
  struct stat status {};
  if (::fstat(fd(), &status) != 0) return 0;
  const std::uint64_t allocated = header().allocated.load(std::memory_order_relaxed);
  const std::uint64_t touched = static_cast<std::uint64_t>(status.st_blocks) * 512;
  return allocated - std::min(allocated, touched);
}

Mailbox& SharedFile::mailbox(int to, Channel channel) {
  const auto block = static_cast<std::uint64_t>(channel / kChannelBlock);
  const std::uint64_t index =
      block * static_cast<std::uint64_t>(ranks_) + static_cast<std::uint64_t>(to);
  const std::uint64_t offset = whole_pages(sizeof(Header)) + index * whole_pages(sizeof(MailRow));
  MailRow*& row = rows_[offset];
  if (!row) row = reinterpret_cast<MailRow*>(map(offset, whole_pages(sizeof(MailRow))));
  return row->boxes[channel % kChannelBlock];
}

}  // namespace skein::shm
