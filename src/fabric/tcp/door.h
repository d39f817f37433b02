// Where a worker lets others in: a listening socket, and those at it who have yet to show that they
// belong to the run.
//
// Whoever connects has a few seconds for that. There are only so many at once: the newest push out
// the oldest, so that a flood of them keeps nobody out who answers at once, and takes little
// memory.
#pragma once

#include <deque>
#include <functional>
#include <memory>

#include "core/loop.h"
#include "fabric/tcp/talk.h"

namespace skein::tcp {

// How long one has to show that and say hello.
inline constexpr Duration kWelcomeLimit = std::chrono::seconds(5);
inline constexpr std::size_t kMostAtTheDoor = 64;

class Door final : private Poller::Watcher {
 public:
  using LetIn = std::function<void(const Hello&, std::unique_ptr<Talk>)>;

  Door(Loop& loop, Poller& poller, const Tls& tls, FileDescriptor listener, LetIn let_in);
  Door(const Door&) = delete;
  Door& operator=(const Door&) = delete;
  ~Door() override;

  LetIn let_in;

  // Is told once when nobody can be let in any more, with the reason.
  std::function<void(const std::string&)> say = [](const std::string&) {};

  Address address() const { return local_address(listener_.get()); }

  // How many did not show that they belong to the run, and what was wrong with the last of them.
  int turned_away() const { return turned_away_; }
  const std::string& last_trouble() const { return last_trouble_; }

  // Why somebody who came could not be let in, as when this process has too many files open; empty
  // when that has not happened.
  const std::string& own_trouble() const { return own_trouble_; }

 private:
  void ready() override;
  Task<> admit(FileDescriptor socket);
  Task<> look_again_soon();
  void make_room();
  void report_trouble(int code);

  Loop& loop_;
  Poller& poller_;
  const Tls& tls_;
  FileDescriptor listener_;
  Poller::Id id_;
  int turned_away_ = 0;
  std::string last_trouble_, own_trouble_;
  std::deque<ScopedJob> guests_;
  ScopedJob pause_;
};

}  // namespace skein::tcp
