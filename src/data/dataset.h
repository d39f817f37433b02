// Samples to train and test on, by number.
#pragma once

#include <torch/torch.h>

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace skein {

// Images: data float32 [B, C, H, W], target int64 [B].
// Text: data int64 [B, T], target int64 [B, T], the character that follows each one.
struct Batch {
  torch::Tensor data, target;

  std::int64_t samples() const { return data.defined() ? data.size(0) : 0; }
};

// Immutable once opened: every member may be called from several threads at once.
class Dataset {
 public:
  virtual ~Dataset() = default;

  virtual std::int64_t size() const = 0;                       // samples, at least 1
  virtual std::vector<std::int64_t> sample_shape() const = 0;  // of Batch::data, without B
  virtual std::int64_t classes() const = 0;                    // targets are 0 … classes − 1

  // The samples `indices` in that order, in new memory: the same bits every time. Each index is
  // below size(); aborts otherwise. ConfigError when a file turns out to be unreadable.
  virtual Batch get(std::span<const std::uint32_t> indices) const = 0;
};

struct DataSets {
  std::shared_ptr<const Dataset> train, test;
  std::string name;  // "glyphs", "mnist", …
};

}  // namespace skein
