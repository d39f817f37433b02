#include "data/prefetch.h"

#include <utility>

namespace skein {

Prefetcher::Prefetcher(std::shared_ptr<const Dataset> dataset, Upload upload)
    : upload_(upload),
      ahead_(
          [dataset = std::move(dataset), upload](std::span<const std::uint32_t> indices) {
            return std::make_shared<Upload::Pending>(upload.start(dataset->get(indices)));
          },
          /*at_once=*/true) {}

void Prefetcher::request(std::vector<std::uint32_t> indices) {
  ahead_.request({std::move(indices)});
}

Batch Prefetcher::take(std::span<const std::uint32_t> indices) {
  return upload_.finish(
      std::move(*std::static_pointer_cast<Upload::Pending>(ahead_.take(indices))));
}

}  // namespace skein
