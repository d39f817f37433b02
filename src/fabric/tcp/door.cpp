#include "fabric/tcp/door.h"

#include <fmt/format.h>
#include <sys/socket.h>

#include <cerrno>

#include "core/descriptor_limit.h"
#include "fabric/tcp/errors.h"

namespace skein::tcp {

using namespace std::chrono_literals;

namespace {

constexpr int kMostLetInAtOnce = 16;  // let in before others get their turn
constexpr Duration kTurnedAway = 1s;  // for one that is turned away to read why

}  // namespace

Door::Door(Loop& loop, Poller& poller, const Tls& tls, FileDescriptor listener, LetIn its_let_in)
    : let_in(std::move(its_let_in)),
      loop_(loop),
      poller_(poller),
      tls_(tls),
      listener_(std::move(listener)),
      id_(poller.add(listener_.get(), *this)) {}

Door::~Door() { poller_.remove(id_, listener_.get()); }

// No job on the loop waits for guests: while none comes there is nothing to do.
void Door::ready() {
  for (int i = 0; i < kMostLetInAtOnce; ++i) {
    FileDescriptor socket(
        ::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (socket.valid()) {
      make_room();
      guests_.emplace_back(loop_.spawn(admit(std::move(socket))));
    } else if (errno == EAGAIN) {
      return;
    } else if (errno != ECONNABORTED && errno != EINTR) {
      // Too few descriptors or too little memory, perhaps for a moment.
      report_trouble(errno);
      if (!guests_.empty()) guests_.pop_front();
      pause_ = ScopedJob(loop_.spawn(look_again_soon()));
      return;
    }
  }
  poller_.again(id_);
}

void Door::report_trouble(int code) {
  const bool first = own_trouble_.empty();
  own_trouble_ = system_error_text(code);
  if (first) say(fmt::format("nobody can connect to {}: {}", address().text(), own_trouble_));
}

Task<> Door::look_again_soon() {
  co_await loop_.sleep_for(20ms);
  poller_.again(id_);
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
    let_in(hello, std::move(talk));
    co_return;
  } catch (const NotAuthenticated& error) {
    ++turned_away_;
    last_trouble_ = error.what();
  } catch (const IoError&) {  // a stranger who has gone, or says nothing
    co_return;
  }
  co_await talk->see_off(std::min(deadline, loop_.now() + kTurnedAway));
}

}  // namespace skein::tcp
