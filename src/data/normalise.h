// Bytes to the floats that models see.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace skein {

// Of one channel over the training set, with bytes scaled to 0 … 1.
struct Statistics {
  double mean;
  double deviation;
};

// Maps byte b of channel c to (b / 255 − mean_c) / deviation_c, by table.
class Normaliser {
 public:
  explicit Normaliser(const std::vector<Statistics>& channels);

  std::size_t channels() const { return tables_.size(); }

  // Writes the floats of `bytes` to `out`. The bytes are channels() planes of one size, or with
  // interleaved() pixels of channels() bytes each; the floats are always planes.
  void planes(std::span<const std::uint8_t> bytes, float* out) const;
  void interleaved(std::span<const std::uint8_t> bytes, float* out) const;

 private:
  std::vector<std::array<float, 256>> tables_;
};

}  // namespace skein
