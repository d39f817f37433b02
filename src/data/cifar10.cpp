#include "data/cifar10.h"

#include <fmt/format.h>

#include <string>
#include <utility>
#include <vector>

#include "data/image_table.h"
#include "data/read_file.h"
#include "skein/error.h"

namespace skein {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t kSide = 32;
constexpr std::size_t kPixels = 3 * kSide * kSide;
constexpr std::size_t kRecord = 1 + kPixels;
constexpr std::uint8_t kClasses = 10;

void append_file(Images& images, const fs::path& path) {
  const std::vector<std::uint8_t> bytes = read_file(path);
  if (bytes.empty() || bytes.size() % kRecord != 0)
    throw ConfigError(fmt::format("{}: {} bytes, expected a multiple of {} (10,000 records are {})",
                                  path.string(), bytes.size(), kRecord, 10'000 * kRecord));
  for (std::size_t at = 0; at < bytes.size(); at += kRecord) {
    if (bytes[at] >= kClasses)
      throw ConfigError(fmt::format("{}: label {} at byte {}, expected 0 to {}", path.string(),
                                    bytes[at], at, kClasses - 1));
    images.labels.push_back(bytes[at]);
    const auto pixels = bytes.begin() + static_cast<std::ptrdiff_t>(at + 1);
    images.pixels.insert(images.pixels.end(), pixels, pixels + kPixels);
  }
}

Images read_files(const fs::path& folder, const std::vector<std::string>& names) {
  Images images{3, kSide, kSide, {}, {}};
  for (const std::string& name : names) append_file(images, folder / name);
  return images;
}

}  // namespace

DataSets open_cifar10(const fs::path& folder) {
  require_folder(folder, "CIFAR-10's binary files");
  std::vector<std::string> train;
  for (int i = 1; i <= 5; ++i) train.push_back(fmt::format("data_batch_{}.bin", i));
  const std::vector<Statistics> statistics{{0.4914, 0.2470}, {0.4822, 0.2435}, {0.4465, 0.2616}};
  const auto table = [&](const std::vector<std::string>& names) {
    return std::make_shared<ImageTable>(read_files(folder, names), kClasses, statistics);
  };
  return {table(train), table({"test_batch.bin"}), "cifar10"};
}

}  // namespace skein
