// Where a worker sleeps that has peers on its host and others elsewhere: until one of either does
// something.
#pragma once

#include <atomic>

#include "core/event_source.h"
#include "fabric/local/local_fabric.h"

namespace skein {

class JointEvents final : public EventSource {
 public:
  // `inside` has a descriptor. The events of `elsewhere` can take it in (EventSource::also).
  JointEvents(LocalFabric& inside, Fabric& elsewhere);

  // What either knows of who has come further the other learns too: a worker of this host may wait
  // for one that waits for another host.
  std::uint32_t poll() override;
  void wait(std::uint32_t ticket, Time until) override;
  void wake() override { elsewhere_events_.wake(); }

 private:
  LocalFabric& inside_;
  Fabric& elsewhere_;
  EventSource& elsewhere_events_;
  std::atomic<std::uint32_t> polls_{0};
  std::atomic<std::uint64_t> tickets_{0};  // of both, as the last poll got them
};

}  // namespace skein
