// What is done when a scope ends, however it ends: a coroutine's frame may be destroyed while it
// waits.
#pragma once

#include <utility>

namespace skein {

template <typename Do>
class OnExit {
 public:
  explicit OnExit(Do act) : act_(std::move(act)) {}
  OnExit(const OnExit&) = delete;
  OnExit& operator=(const OnExit&) = delete;
  ~OnExit() { act_(); }

 private:
  Do act_;
};

}  // namespace skein
