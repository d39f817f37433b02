// PNG and JPEG files to pixels.
#pragma once

#include <filesystem>

#include "data/picture.h"

namespace skein {

// Whether decode_file() knows files of that name: .png, .jpg or .jpeg, in either case.
bool is_picture_name(const std::filesystem::path& path);

// Decodes by what the file begins with, whatever its name says. Grey becomes red = green = blue;
// what is transparent becomes white.
// ConfigError that names the file when it is neither PNG nor JPEG, truncated, corrupt or larger
// than 16384 pixels either way.
Picture decode_file(const std::filesystem::path& path);

}  // namespace skein
