#include "fabric/tcp/door.h"

#include <sys/socket.h>

#include <cerrno>

#include "fabric/tcp/errors.h"

namespace skein::tcp {

using namespace std::chrono_literals;

Door::Door(Loop& loop, Poller& poller, const Tls& tls, FileDescriptor listener, LetIn let_in)
    : loop_(loop),
      poller_(poller),
      tls_(tls),
      listener_(std::move(listener)),
      arrivals_(loop, poller, listener_.get()),
      let_in_(std::move(let_in)),
      opening_(loop.spawn(open())) {}

Task<> Door::open() {
  for (;;) {
    FileDescriptor socket(
        ::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (socket.valid()) {
      make_room();
      guests_.emplace_back(loop_.spawn(admit(std::move(socket))));
      co_await loop_.yield();
    } else if (errno == EAGAIN) {
      co_await arrivals_.changed.wait();
    } else if (errno != ECONNABORTED && errno != EINTR) {
      // Too few descriptors or too little memory, perhaps for a moment.
      if (!guests_.empty()) guests_.pop_front();
      co_await loop_.sleep_for(20ms);
    }
  }
}

void Door::make_room() {
  std::erase_if(guests_, [](const ScopedJob& guest) { return guest->done(); });
  if (guests_.size() >= kMostAtTheDoor) guests_.pop_front();
}

Task<> Door::admit(FileDescriptor socket) {
  const Deadline deadline = loop_.now() + kWelcomeLimit;
  never_delay(socket.get());
  auto talk = std::make_unique<Talk>(
      loop_, std::make_unique<Stream>(poller_, std::move(socket), tls_, Side::accepts));
  try {
    co_await talk->handshake(deadline);
    const Hello hello = co_await talk->hear_hello(deadline);
    let_in_(hello, std::move(talk));
  } catch (const NotAuthenticated&) {
    ++turned_away_;
  } catch (const IoError&) {  // a stranger who has gone, or says nothing
  }
}

}  // namespace skein::tcp
