#include "launch/relay.h"

#include <array>
#include <cerrno>

namespace skein {
namespace {

// A line that never ends is passed on in pieces of this size.
constexpr std::size_t kLongestLine = 1 << 16;

// Drops what cannot be written: there is nowhere else for it to go.
void write_to_log(int descriptor, std::string_view text) {
  while (!text.empty()) {
    const ssize_t count = write(descriptor, text.data(), text.size());
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return;
    text.remove_prefix(static_cast<std::size_t>(count));
  }
}

}  // namespace

Relay::Relay(FileDescriptor from, Outbox& to, std::string prefix, int log)
    : from_(std::move(from)), to_(to), prefix_(std::move(prefix)), log_(log) {
  make_nonblocking(from_.get());
}

void Relay::pump() {
  std::array<char, 1 << 14> chunk;
  while (from_.valid() && has_room()) {
    const ssize_t count = read(from_.get(), chunk.data(), chunk.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0 && errno == EAGAIN) return;
    if (count <= 0) {
      from_ = FileDescriptor();
      if (!pending_.empty()) emit(pending_.size());
      return;
    }
    pending_.append(chunk.data(), static_cast<std::size_t>(count));
    for (std::size_t end; (end = pending_.find('\n')) != std::string::npos;) emit(end + 1);
    if (!pending_.empty() && (prefix_.empty() || pending_.size() >= kLongestLine))
      emit(pending_.size());
  }
}

void Relay::emit(std::size_t count) {
  const std::string_view line = std::string_view(pending_).substr(0, count);
  if (log_ >= 0) write_to_log(log_, line);
  std::string out = prefix_;
  out += line;
  if (!prefix_.empty() && out.back() != '\n') out += '\n';
  to_.add(out);
  pending_.erase(0, count);
}

}  // namespace skein
