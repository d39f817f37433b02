#include "data/normalise.h"

#include "core/check.h"

namespace skein {

Normaliser::Normaliser(const std::vector<Statistics>& channels) {
  for (const auto& [mean, deviation] : channels) {
    auto& table = tables_.emplace_back();
    for (std::size_t byte = 0; byte < table.size(); ++byte)
      table[byte] = static_cast<float>((static_cast<double>(byte) / 255.0 - mean) / deviation);
  }
}

void Normaliser::planes(std::span<const std::uint8_t> bytes, float* out) const {
  SKEIN_CHECK(bytes.size() % channels() == 0, "{} bytes of {} channels", bytes.size(), channels());
  const std::size_t plane = bytes.size() / channels();
  for (std::size_t c = 0; c < channels(); ++c)
    for (std::size_t i = c * plane; i < (c + 1) * plane; ++i) out[i] = tables_[c][bytes[i]];
}

void Normaliser::interleaved(std::span<const std::uint8_t> bytes, float* out) const {
  SKEIN_CHECK(bytes.size() % channels() == 0, "{} bytes of {} channels", bytes.size(), channels());
  const std::size_t plane = bytes.size() / channels();
  for (std::size_t i = 0; i < plane; ++i)
    for (std::size_t c = 0; c < channels(); ++c)
      out[c * plane + i] = tables_[c][bytes[i * channels() + c]];
}

}  // namespace skein
