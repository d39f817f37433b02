// The samples of a data set where a model computes on them.
#pragma once

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <span>
#include <vector>

#include "data/dataset.h"
#include "train/compute.h"

namespace skein {

// On the host a data set as it is. A device gets all of it at once, where that is not too much, and
// then only the numbers of the samples that a batch is made of: many small steps would else wait
// for their batches.
class Samples {
 public:
  static constexpr std::int64_t kMostBytes = std::int64_t{4} << 30;

  // `data` and `compute` outlive this. At most so many bytes are held.
  Samples(const Dataset& data, const Compute& compute, std::int64_t most_bytes);
  Samples(const Dataset& data, const Compute& compute)
      : Samples(data, compute, compute.on_gpu() ? kMostBytes : 0) {}

  std::int64_t size() const { return data_.size(); }
  torch::Device device() const { return compute_.device(); }

  // As Dataset::get(), on the device. `indices` may change as soon as it returns.
  Batch get(std::span<const std::uint32_t> indices) const;

  // Whether the device has all of them; and then those with these numbers, which are there, too.
  bool held() const { return all_.data.defined(); }
  Batch select(const torch::Tensor& numbers) const;

 private:
  void hold();

  const Dataset& data_;
  const Compute& compute_;
  Batch all_;  // undefined: they are read one batch at a time
};

// Numbers of samples as a tensor on the device.
torch::Tensor numbers_on(torch::Device device, std::span<const std::uint32_t> indices);

// Calls visit(indices) for all samples in order, in blocks.
void for_each_block(std::int64_t size, const auto& visit) {
  constexpr std::int64_t kBlock = 250;
  std::vector<std::uint32_t> indices;
  for (std::int64_t next = 0; next < size; next += kBlock) {
    indices.resize(static_cast<std::size_t>(std::min(kBlock, size - next)));
    std::iota(indices.begin(), indices.end(), static_cast<std::uint32_t>(next));
    visit(std::span<const std::uint32_t>(indices));
  }
}

}  // namespace skein
