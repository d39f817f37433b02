#include "skein/version.h"

#include <gtest/gtest.h>

#include <string>

namespace skein {
namespace {

TEST(Version, IsThatOfTheHeaders) {
  EXPECT_EQ(version(), std::to_string(SKEIN_VERSION_MAJOR) + "." +
                           std::to_string(SKEIN_VERSION_MINOR) + "." +
                           std::to_string(SKEIN_VERSION_PATCH));
}

}  // namespace
}  // namespace skein
