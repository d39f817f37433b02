// Jobs that run by themselves: nobody waits for them, so nobody would see what ends them.
#pragma once

#include <exception>

#include "core/task.h"
#include "skein/error.h"

namespace skein {

// Runs `job` to its end. An IoError is a lost peer: `lost(error)` is called. Anything else is
// something that went wrong here: `broke(error)`. Cancelled passes through.
template <typename Lost, typename Broke>
Task<> run_by_itself(Task<> job, Lost lost, Broke broke) {
  try {
    co_await job;
  } catch (const IoError&) {
    lost(std::current_exception());
  } catch (const Cancelled&) {
    throw;
  } catch (...) {
    broke(std::current_exception());
  }
}

}  // namespace skein
