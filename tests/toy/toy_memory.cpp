#include "toy/toy_memory.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <map>
#include <mutex>

#include "core/check.h"
#include "toy/toy_device.h"

namespace skein::toy {
namespace {

// By where the host sees them.
struct Blocks {
  std::mutex mutex;
  std::map<const std::byte*, const Block*> all;
};

Blocks& blocks() {
  static Blocks all;
  return all;
}

std::size_t whole_pages(std::size_t bytes) {
  return (std::max<std::size_t>(bytes, 1) + 4095) / 4096 * 4096;
}

}  // namespace

FileDescriptor new_file(std::size_t bytes) {
  FileDescriptor file(::memfd_create("toy", MFD_CLOEXEC));
  SKEIN_CHECK(file.valid() && ::ftruncate(file.get(), static_cast<off_t>(bytes)) == 0, "no memory");
  return file;
}

Block::Block(std::size_t bytes) : Block(new_file(whole_pages(bytes)), whole_pages(bytes)) {
  file_ = FileDescriptor();
}

Block::Block(FileDescriptor file, std::size_t bytes)
    : file_(std::move(file)),
      bytes_(bytes),
      outside_(map(PROT_NONE)),
      inside_(map(PROT_READ | PROT_WRITE)) {
  const std::lock_guard lock(blocks().mutex);
  blocks().all[outside_] = this;
}

Block::~Block() {
  {
    const std::lock_guard lock(blocks().mutex);
    blocks().all.erase(outside_);
  }
  ::munmap(outside_, bytes_);
  ::munmap(inside_, bytes_);
}

std::byte* Block::map(int rights) const {
  void* const at = ::mmap(nullptr, bytes_, rights, MAP_SHARED, file_.get(), 0);
  SKEIN_CHECK(at != MAP_FAILED, "no memory");
  return static_cast<std::byte*>(at);
}

Span inside(Span span) {
  if (span.device.kind != Device::gpu || span.count == 0)
    return {span.data, span.count, Device::cpu, span.type};
  const std::lock_guard lock(blocks().mutex);
  const auto* const at = static_cast<const std::byte*>(span.data);
  auto found = blocks().all.upper_bound(at);
  SKEIN_CHECK(found != blocks().all.begin(), "no memory of the device");
  --found;
  const auto offset = static_cast<std::size_t>(at - found->first);
  SKEIN_CHECK(offset + span.bytes() <= found->second->bytes(), "no memory of the device");
  return {found->second->inside() + offset, span.count, Device::cpu, span.type};
}

}  // namespace skein::toy
