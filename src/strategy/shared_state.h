// What belongs to a run beside the model and the optimizer's state.
#pragma once

#include <map>
#include <string>

#include "core/span.h"

namespace skein {

// Vectors of the whole plane, by name, that are the same on all workers after flush(). A checkpoint
// keeps them where `*begun` says that they hold anything. A resumed run writes them through the
// spans, before its first step, and sets `*begun`. Null: there are none.
struct SharedState {
  std::map<std::string, Span> vectors;
  bool* begun = nullptr;
};

}  // namespace skein
