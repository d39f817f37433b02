#include "data/image_folder.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "core/check.h"
#include "core/rng.h"
#include "data/decode.h"
#include "data/normalise.h"
#include "data/read_file.h"
#include "skein/error.h"

namespace skein {
namespace {

namespace fs = std::filesystem;

struct Entry {
  fs::path path;
  std::int64_t label;
};

class ImageFolder : public Dataset {
 public:
  ImageFolder(std::vector<Entry> entries, std::int64_t classes, std::int64_t side)
      : entries_(std::move(entries)),
        classes_(classes),
        side_(side),
        // ImageNet's, which fit most photographs.
        normaliser_({{0.485, 0.229}, {0.456, 0.224}, {0.406, 0.225}}) {}

  std::int64_t size() const override { return static_cast<std::int64_t>(entries_.size()); }
  std::vector<std::int64_t> sample_shape() const override { return {3, side_, side_}; }
  std::int64_t classes() const override { return classes_; }

  Batch get(std::span<const std::uint32_t> indices) const override {
    const auto count = static_cast<std::int64_t>(indices.size());
    Batch batch{torch::empty({count, 3, side_, side_}), torch::empty({count}, torch::kInt64)};
    float* data = batch.data.data_ptr<float>();
    std::int64_t* target = batch.target.data_ptr<std::int64_t>();
    for (const std::uint32_t index : indices) {
      SKEIN_CHECK(index < entries_.size(), "sample {} of {}", index, entries_.size());
      const Entry& entry = entries_[index];
      const Picture picture = resize_and_crop(decode_file(entry.path), static_cast<int>(side_));
      normaliser_.interleaved(picture.rgb, data);
      data += 3 * side_ * side_;
      *target++ = entry.label;
    }
    return batch;
  }

 private:
  std::vector<Entry> entries_;
  std::int64_t classes_;
  std::int64_t side_;
  Normaliser normaliser_;
};

bool is_folder(const fs::path& path) {
  std::error_code code;
  return fs::is_directory(path, code);
}

// What is in a folder, by name: the order in which a file system lists is its own.
std::vector<fs::path> sorted_contents(const fs::path& folder) {
  std::vector<fs::path> paths;
  try {
    for (const auto& entry : fs::directory_iterator(folder)) paths.push_back(entry.path());
  } catch (const fs::filesystem_error& error) {
    throw ConfigError(fmt::format("{}: {}", folder.string(), error.code().message()));
  }
  std::ranges::sort(paths);
  return paths;
}

std::vector<std::string> class_names(const fs::path& part) {
  require_folder(part, "a folder of pictures for each class");
  std::vector<std::string> names;
  for (const fs::path& path : sorted_contents(part))
    if (is_folder(path)) names.push_back(path.filename().string());
  if (names.size() < 2)
    throw ConfigError(fmt::format("{}: {} folders, expected one for each class and at least two",
                                  part.string(), names.size()));
  return names;
}

// The pictures of train/ or test/, class by class. Every folder must be one of `classes`.
std::vector<Entry> list_part(const fs::path& part, const std::vector<std::string>& classes) {
  std::vector<Entry> entries;
  for (const std::string& name : class_names(part)) {
    const auto found = std::ranges::find(classes, name);
    if (found == classes.end())
      throw ConfigError(fmt::format("{}: not a class of the training part, which has {}",
                                    (part / name).string(), fmt::join(classes, ", ")));
    const std::size_t before = entries.size();
    for (const fs::path& path : sorted_contents(part / name))
      if (is_picture_name(path)) entries.push_back({path, found - classes.begin()});
    if (entries.size() == before)
      throw ConfigError(
          fmt::format("{}: no pictures, expected .png or .jpg files", (part / name).string()));
  }
  if (entries.size() > std::numeric_limits<std::uint32_t>::max())
    throw ConfigError(fmt::format("{}: {} pictures are too many", part.string(), entries.size()));
  return entries;
}

// Moves a tenth of `train`, at least one picture, to the result.
std::vector<Entry> hold_out(std::vector<Entry>& train, std::uint64_t seed) {
  const auto order = Rng(seed).permutation(static_cast<std::uint32_t>(train.size()));
  const std::size_t count = std::max<std::size_t>(1, train.size() / 10);
  std::vector<bool> held(train.size());
  for (std::size_t i = 0; i < count; ++i) held[order[i]] = true;
  std::vector<Entry> test, rest;
  for (std::size_t i = 0; i < train.size(); ++i)
    (held[i] ? test : rest).push_back(std::move(train[i]));
  train = std::move(rest);
  return test;
}

}  // namespace

DataSets open_images(const fs::path& folder, const Settings& settings, std::uint64_t run_seed) {
  SettingsReader reader("data", settings);
  const std::int64_t side = reader.integer("size", 64, 1, 4'096);
  const std::uint64_t seed = reader.seed("seed", 20, run_seed);
  reader.finish("data 'images'");

  require_folder(folder, "train/CLASS/*.png or *.jpg");
  const std::vector<std::string> classes = class_names(folder / "train");
  std::vector<Entry> train = list_part(folder / "train", classes);
  std::vector<Entry> test;
  if (is_folder(folder / "test"))
    test = list_part(folder / "test", classes);
  else if (is_folder(folder / "val"))
    test = list_part(folder / "val", classes);
  else
    test = hold_out(train, seed);

  const auto count = static_cast<std::int64_t>(classes.size());
  return {std::make_shared<ImageFolder>(std::move(train), count, side),
          std::make_shared<ImageFolder>(std::move(test), count, side), "images"};
}

}  // namespace skein
