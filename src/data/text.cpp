#include "data/text.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <limits>
#include <utility>
#include <vector>

#include "core/check.h"
#include "data/read_file.h"
#include "skein/error.h"

namespace skein {
namespace {

class Text : public Dataset {
 public:
  Text(std::vector<std::uint8_t> tokens, std::int64_t context, std::int64_t classes)
      : tokens_(std::move(tokens)), context_(context), classes_(classes) {}

  std::int64_t size() const override {
    return (static_cast<std::int64_t>(tokens_.size()) - 1) / context_;
  }
  std::vector<std::int64_t> sample_shape() const override { return {context_}; }
  std::int64_t classes() const override { return classes_; }

  Batch get(std::span<const std::uint32_t> indices) const override {
    const auto count = static_cast<std::int64_t>(indices.size());
    Batch batch{torch::empty({count, context_}, torch::kInt64),
                torch::empty({count, context_}, torch::kInt64)};
    std::int64_t* data = batch.data.data_ptr<std::int64_t>();
    std::int64_t* target = batch.target.data_ptr<std::int64_t>();
    for (const std::uint32_t index : indices) {
      SKEIN_CHECK(index < size(), "sample {} of {}", index, size());
      const std::uint8_t* first = tokens_.data() + index * context_;
      data = std::copy(first, first + context_, data);
      target = std::copy(first + 1, first + 1 + context_, target);
    }
    return batch;
  }

 private:
  std::vector<std::uint8_t> tokens_;
  std::int64_t context_;
  std::int64_t classes_;
};

// Replaces each byte by its number among those that occur, and returns how many do.
std::int64_t number_characters(std::vector<std::uint8_t>& bytes) {
  std::array<bool, 256> occurs{};
  for (const std::uint8_t byte : bytes) occurs[byte] = true;
  std::array<std::uint8_t, 256> number{};
  std::int64_t count = 0;
  for (std::size_t byte = 0; byte < occurs.size(); ++byte)
    if (occurs[byte]) number[byte] = static_cast<std::uint8_t>(count++);
  for (std::uint8_t& byte : bytes) byte = number[byte];
  return count;
}

}  // namespace

DataSets open_text(const std::filesystem::path& path, const Settings& settings) {
  SettingsReader reader("data", settings);
  const std::int64_t context = reader.integer("context", 128, 1, 65'536);
  reader.finish("data 'text'");

  std::vector<std::uint8_t> bytes = read_file(path, std::numeric_limits<std::uint32_t>::max());
  const std::size_t test_bytes = bytes.size() / 10;
  if (std::cmp_less(test_bytes, context + 1))
    throw ConfigError(
        fmt::format("{}: {} bytes, expected at least {}: the last tenth is the test "
                    "part and must hold data.context={} characters and one more",
                    path.string(), bytes.size(), 10 * (context + 1), context));
  const std::int64_t classes = number_characters(bytes);
  const auto cut = bytes.end() - static_cast<std::ptrdiff_t>(test_bytes);
  std::vector<std::uint8_t> test(cut, bytes.end());
  bytes.erase(cut, bytes.end());
  return {std::make_shared<Text>(std::move(bytes), context, classes),
          std::make_shared<Text>(std::move(test), context, classes), "text"};
}

}  // namespace skein
