// Loads the next batch while the current one is computed, and brings it to where it is computed.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "data/dataset.h"
#include "data/upload.h"
#include "feed/load_ahead.h"

namespace skein {

// One batch ahead, on one thread that sleeps when there is nothing to load.
// request() and take() are for one thread at a time. The destructor waits for a load in progress.
class Prefetcher {
 public:
  explicit Prefetcher(std::shared_ptr<const Dataset> dataset, Upload upload = Upload());

  // Starts loading these samples. Replaces an earlier request that was not taken.
  void request(std::vector<std::uint32_t> indices);

  // The batch of these samples: the one requested if the indices are exactly those, waiting for it
  // if need be; otherwise loaded here and now. What the load threw is thrown here. On a device it
  // is in the order of this thread's stream.
  Batch take(std::span<const std::uint32_t> indices);

 private:
  Upload upload_;
  LoadAhead ahead_;
};

}  // namespace skein
