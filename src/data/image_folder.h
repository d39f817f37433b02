// Pictures in a folder per class.
#pragma once

#include <cstdint>
#include <filesystem>

#include "data/dataset.h"
#include "data/settings.h"

namespace skein {

// `folder` holds train/CLASS/*.png|jpg and the same under test/ or val/. With neither of these, a
// tenth of the training pictures, the same every time, becomes the test part. Classes are numbered
// in the order of their names. Pictures are decoded when they are asked for, their shorter side
// scaled to the setting `size` (64) and the middle cut out. Setting `seed` chooses the tenth.
// ConfigError names the folder or file that is missing, empty or unreadable.
DataSets open_images(const std::filesystem::path& folder, const Settings& settings,
                     std::uint64_t run_seed);

}  // namespace skein
