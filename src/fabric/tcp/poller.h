// Where a worker sleeps until one of its sockets has something for it: epoll.
//
// Readiness is reported once, when it begins: who is told reads or writes until nothing moves any
// more, or asks to be told again.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <unordered_map>
#include <vector>

#include "core/event_source.h"
#include "core/file_descriptor.h"

namespace skein::tcp {

class Poller final : public EventSource {
 public:
  // Something that wants to know when its socket is ready.
  class Watcher {
   public:
    virtual ~Watcher() = default;
    virtual void ready() = 0;  // to be read or written, or closed; or nothing of that
  };
  using Id = std::uint64_t;

  Poller();

  // Calls watcher.ready() from poll() until remove(). It may add and remove watchers, itself too.
  Id add(int socket, Watcher& watcher);
  void remove(Id id, int socket);

  // Calls ready() at the next poll, which comes at once, whether or not something has arrived.
  void again(Id id);

  // From now on calls `tick` from poll() whenever so much time has passed, at the next occasion.
  // wait() ends for it.
  void tick_every(Duration period, std::function<void()> tick);

  std::uint32_t poll() override;
  void wait(std::uint32_t ticket, Time until) override;
  void wake() override;
  bool also(int descriptor) override;

 private:
  void tell(Id id);
  void tick_if_due();

  FileDescriptor epoll_, bell_;
  std::unordered_map<Id, Watcher*> watchers_;
  std::vector<Id> again_;
  Id next_ = 1;
  std::atomic<std::uint32_t> arrivals_{
      0};                           // changes when something has arrived or wake() is called
  std::atomic<bool> hurry_{false};  // somebody is to be told again
  std::function<void()> tick_;
  Duration period_{0};
  std::atomic<Time> next_tick_{kNever};
};

}  // namespace skein::tcp
