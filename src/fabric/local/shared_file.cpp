#include "fabric/local/shared_file.h"

#include <fmt/format.h>
#include <sys/mman.h>

#include <cerrno>
#include <cstring>

#include "skein/error.h"

namespace skein::shm {

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
  if (base == MAP_FAILED)
    throw Error(fmt::format("shared memory: no addresses for {} bytes: {} (ulimit -v?)", bytes,
                            std::strerror(errno)));
  ::madvise(base, bytes, MADV_DONTDUMP);
  return static_cast<std::byte*>(base);
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
