// Opens a data set by the name that the command line uses.
#pragma once

#include <cstdint>
#include <string>

#include "data/dataset.h"
#include "data/settings.h"

namespace skein {

// `spec` is one of
//   glyphs         drawn by the program      settings train, test, seed
//   mnist:DIR      MNIST's four IDX files, unpacked
//   cifar10:DIR    CIFAR-10's binary version
//   images:DIR     DIR/train/CLASS/*.png|jpg, DIR/test or DIR/val likewise    settings size, seed
//   text:FILE      characters of a file      setting context
// What is random about the data (glyphs, the held-out tenth of images) comes from the setting
// `seed`, which has a fixed default: runs with different `run_seed` see the same data, unless
// `seed` is "run".
// ConfigError for an unknown spec or setting and for files that are missing, truncated or corrupt.
DataSets open_data(const std::string& spec, const Settings& settings, std::uint64_t run_seed);

}  // namespace skein
