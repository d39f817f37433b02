#include "data/mnist.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <span>
#include <string>
#include <vector>

#include "data/image_table.h"
#include "data/read_file.h"
#include "skein/error.h"

namespace skein {
namespace {

namespace fs = std::filesystem;

constexpr std::uint32_t kMnistClasses = 10;

// An IDX file of bytes: 0, 0, 8 (unsigned bytes), the number of dimensions, each dimension as four
// bytes, highest first, and then the values.
struct Idx {
  std::vector<std::uint32_t> dimensions;
  std::vector<std::uint8_t> values;
};

// Also says what to do when only the packed file is there, as it is downloaded.
std::vector<std::uint8_t> read_unpacked(const fs::path& path) {
  const fs::path packed = path.string() + ".gz";
  std::error_code code;
  if (!fs::exists(path, code) && fs::exists(packed, code))
    throw ConfigError(fmt::format("{}: no such file, but {} is there: unpack it with gunzip -k",
                                  path.string(), packed.filename().string()));
  return read_file(path);
}

Idx read_idx(const fs::path& path, std::size_t dimensions) {
  std::vector<std::uint8_t> bytes = read_unpacked(path);
  const std::size_t header = 4 + 4 * dimensions;
  if (bytes.size() < header)
    throw ConfigError(fmt::format("{}: {} bytes, expected an IDX header of {}", path.string(),
                                  bytes.size(), header));
  const std::array<std::uint8_t, 4> magic{0, 0, 8, static_cast<std::uint8_t>(dimensions)};
  if (!std::equal(magic.begin(), magic.end(), bytes.begin()))
    throw ConfigError(fmt::format(
        "{}: starts with {:02x}{:02x}{:02x}{:02x}, expected 000008{:02x} (IDX, unsigned "
        "bytes, {} dimensions)",
        path.string(), bytes[0], bytes[1], bytes[2], bytes[3], dimensions, dimensions));
  Idx idx;
  std::uint64_t values = 1;
  for (std::size_t at = 4; at < header; at += 4) {
    const std::uint32_t dimension = static_cast<std::uint32_t>(bytes[at]) << 24 |
                                    static_cast<std::uint32_t>(bytes[at + 1]) << 16 |
                                    static_cast<std::uint32_t>(bytes[at + 2]) << 8 | bytes[at + 3];
    // The first counts samples, the others are the sides of a picture.
    const std::uint32_t most = at == 4 ? 100'000'000 : 4'096;
    if (dimension == 0 || dimension > most)
      throw ConfigError(fmt::format("{}: dimension of {} at byte {}, expected 1 to {}",
                                    path.string(), dimension, at, most));
    idx.dimensions.push_back(dimension);
    values *= dimension;
  }
  if (bytes.size() != header + values)
    throw ConfigError(fmt::format("{}: {} bytes, expected {} for {} samples", path.string(),
                                  bytes.size(), header + values, idx.dimensions[0]));
  bytes.erase(bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(header));
  idx.values = std::move(bytes);
  return idx;
}

Images read_part(const fs::path& folder, const std::string& part) {
  const fs::path images_path = folder / (part + "-images-idx3-ubyte");
  const fs::path labels_path = folder / (part + "-labels-idx1-ubyte");
  Idx images = read_idx(images_path, 3);
  Idx labels = read_idx(labels_path, 1);
  if (images.dimensions[0] != labels.dimensions[0])
    throw ConfigError(fmt::format("{}: {} labels, expected {} as {} has that many images",
                                  labels_path.string(), labels.dimensions[0], images.dimensions[0],
                                  images_path.filename().string()));
  const auto wrong = std::ranges::find_if(
      labels.values, [](std::uint8_t label) { return label >= kMnistClasses; });
  if (wrong != labels.values.end())
    throw ConfigError(fmt::format("{}: label {} at byte {}, expected 0 to {}", labels_path.string(),
                                  *wrong, 8 + (wrong - labels.values.begin()), kMnistClasses - 1));
  return {1, images.dimensions[1], images.dimensions[2], std::move(images.values),
          std::move(labels.values)};
}

}  // namespace

DataSets open_mnist(const fs::path& folder) {
  require_folder(folder, "MNIST's IDX files");
  Images train = read_part(folder, "train");
  Images test = read_part(folder, "t10k");
  if (train.height != test.height || train.width != test.width)
    throw ConfigError(
        fmt::format("{}: train images of {} x {}, test images of {} x {}: expected "
                    "the same",
                    folder.string(), train.height, train.width, test.height, test.width));
  const std::vector<Statistics> statistics{{0.1307, 0.3081}};
  return {std::make_shared<ImageTable>(std::move(train), kMnistClasses, statistics),
          std::make_shared<ImageTable>(std::move(test), kMnistClasses, statistics), "mnist"};
}

}  // namespace skein
