// MNIST and its likes (Fashion-MNIST, KMNIST): four IDX files, ten classes.
#pragma once

#include <filesystem>

#include "data/dataset.h"

namespace skein {

// `folder` holds train-images-idx3-ubyte, train-labels-idx1-ubyte, t10k-images-idx3-ubyte and
// t10k-labels-idx1-ubyte, unpacked. ConfigError names the file, what it holds and what it should.
DataSets open_mnist(const std::filesystem::path& folder);

}  // namespace skein
