// CIFAR-10 in its binary version.
#pragma once

#include <filesystem>

#include "data/dataset.h"

namespace skein {

// `folder` holds data_batch_1.bin … data_batch_5.bin and test_batch.bin, each a whole number of
// records of one label and 3 × 32 × 32 bytes. ConfigError names the file, what it holds and what it
// should.
DataSets open_cifar10(const std::filesystem::path& folder);

}  // namespace skein
