// A text file, character by character.
#pragma once

#include <filesystem>

#include "data/dataset.h"
#include "data/settings.h"

namespace skein {

// A character is a byte; the classes are the bytes that occur in the file, in order of their value.
// A sample is `context` (setting, 128) characters in a row and its target the ones that follow
// each; samples do not overlap. The last tenth of the file is the test part. ConfigError when the
// file is missing or too short for one test sample.
DataSets open_text(const std::filesystem::path& path, const Settings& settings);

}  // namespace skein
