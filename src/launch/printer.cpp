#include "launch/printer.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>

namespace skein {
namespace {

constexpr auto kLongestStop = std::chrono::seconds(1);  // of a reader, once the run is interrupted

bool same_pipe_or_terminal(int one, int other) {
  struct stat a {
  }, b{};
  return ::fstat(one, &a) == 0 && ::fstat(other, &b) == 0 && a.st_dev == b.st_dev &&
         a.st_ino == b.st_ino && !S_ISREG(a.st_mode);
}

}  // namespace

Printer::Printer(Time now) : one_(same_pipe_or_terminal(STDOUT_FILENO, STDERR_FILENO)) {
  for (std::size_t i = 0; i < outlets_.size(); ++i) {
    Outlet& outlet = outlets_[i];
    const int original = i == 0 ? STDOUT_FILENO : STDERR_FILENO;
    if (::fcntl(original, F_GETFD) >= 0)
      outlet.to = copy_for_writing(original);  // else it is closed
    outlet.box = Outbox(outlet.to.get());
    outlet.stuck_since = now;
  }
}

void Printer::flush(Time now, Time interrupted_at) {
  for (Outlet& outlet : outlets_) {
    const std::size_t before = outlet.box.size();
    outlet.box.flush();
    const std::size_t left = outlet.box.size();
    if (!outlet.waits || left < before) outlet.stuck_since = now;
    outlet.waits = left > 0;
    if (left == 0 || interrupted_at == kNever) continue;
    if (!outlet.dropped && now < std::max(outlet.stuck_since, interrupted_at) + kLongestStop)
      continue;
    outlet.dropped = true;
    outlet.box.clear();
  }
}

void Printer::watch(std::vector<pollfd>& watched) const {
  for (const Outlet& outlet : outlets_)
    if (outlet.box.size() > 0) watched.push_back({outlet.to.get(), POLLOUT, 0});
}

Time Printer::next_look(Time interrupted_at) const {
  Time out = kNever;
  for (const Outlet& outlet : outlets_)
    if (interrupted_at != kNever && outlet.box.size() > 0)
      out = std::min(out, std::max(outlet.stuck_since, interrupted_at) + kLongestStop);
  return out;
}

}  // namespace skein
